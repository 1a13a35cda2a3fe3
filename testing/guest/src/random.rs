// SPDX-License-Identifier: GPL-2.0-or-later
//! A small seeded random number generator (SplitMix64). All arms of a repetition do the same work,
//! and every repetition does different work.

/// The seed for a purpose in a repetition: the same in every arm, different in every repetition.
pub fn seed(purpose: u64, repetition: u32) -> u64 {
    purpose ^ Random::new(u64::from(repetition)).word()
}

/// A stream of numbers determined by its seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`; 0 when `bound` is 0. The modulo bias is below 2^-32 for every bound
    /// that the guest uses.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            0
        } else {
            self.word() % bound
        }
    }

    /// `count` distinct numbers of `0..bound` in random order; all of them when `count >= bound`.
    pub fn sample(&mut self, bound: usize, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..bound).collect();
        let count = count.min(bound);
        for i in 0..count {
            let j = i + self.below((bound - i) as u64) as usize;
            all.swap(i, j);
        }
        all.truncate(count);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::{seed, Random};

    #[test]
    fn purposes_and_repetitions_have_distinct_seeds() {
        let mut seeds: Vec<u64> = (0..4)
            .flat_map(|purpose| (0..50).map(move |repetition| seed(purpose, repetition)))
            .collect();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 200);
        assert_eq!(seed(3, 7), seed(3, 7));
    }

    #[test]
    fn seed_determines_the_stream() {
        let mut a = Random::new(7);
        let mut b = Random::new(7);
        assert!((0..100).all(|_| a.word() == b.word()));
        assert_ne!(Random::new(7).word(), Random::new(8).word());
    }

    #[test]
    fn sample_holds_distinct_numbers_in_range() {
        let mut random = Random::new(1);
        for count in [0, 1, 17, 64, 100] {
            let mut sample = random.sample(64, count);
            assert_eq!(sample.len(), count.min(64));
            sample.sort_unstable();
            sample.dedup();
            assert_eq!(sample.len(), count.min(64));
            assert!(sample.iter().all(|&i| i < 64));
        }
    }
}
