// SPDX-License-Identifier: GPL-2.0-or-later
//! How many requests of a replay a disk holds at the same time.
//!
//! A queue is served about in order. A replay that made all its requests at once would make every
//! other program wait until the whole record is read, and the starting app as well for the first
//! file that it needs. With few requests in flight, in the order in which the app opens its files,
//! the first files arrive first, and other programs' requests are served in between.

use std::collections::VecDeque;

/// Requests of a replay in flight. Five programs that wait for one request each keep more than half
/// of the disk.
pub const SLOTS: usize = 4;

/// The requests of a replay that may be in flight, oldest first.
#[derive(Debug)]
pub struct Flight<T> {
    requests: VecDeque<T>,
    slots: usize,
}

impl<T> Flight<T> {
    /// No request is in flight. `slots`: the maximum, at least 1.
    pub fn new(slots: usize) -> Flight<T> {
        Flight {
            requests: VecDeque::new(),
            slots: slots.max(1),
        }
    }

    /// Adds a request that has just been made. Returns the request to wait for before the next one
    /// is made.
    pub fn add(&mut self, request: T) -> Option<T> {
        self.requests.push_back(request);
        match self.requests.len() >= self.slots {
            true => self.requests.pop_front(),
            false => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Share of a disk that serves one request at a time, in order, that `readers` get while a
    /// replay of 400 requests lasts. Each reader always waits for one request.
    fn share_of_readers(readers: usize, slots: usize) -> f64 {
        const REPLAY: usize = 400;
        let mut queue: VecDeque<Option<usize>> = vec![None; readers].into();
        let mut flight = Flight::new(slots);
        let (mut made, mut replayed, mut read) = (0, 0, 0);
        let mut awaited = None;
        while replayed < REPLAY {
            while awaited.is_none() && made < REPLAY {
                queue.push_back(Some(made));
                awaited = flight.add(made);
                made += 1;
            }
            match queue.pop_front() {
                Some(None) => {
                    read += 1;
                    queue.push_back(None);
                }
                served => {
                    replayed += 1;
                    awaited = awaited.filter(|_| awaited != served.flatten());
                }
            }
        }
        read as f64 / (read + REPLAY) as f64
    }

    #[test]
    fn five_readers_keep_half_of_the_disk_and_would_lose_it_to_all_requests_at_once() {
        assert!(share_of_readers(5, SLOTS) > 0.5);
        assert!(share_of_readers(10, SLOTS) > 0.7);
        assert!(share_of_readers(5, usize::MAX) < 0.02);
    }

    proptest! {
        #[test]
        fn requests_end_in_order_and_at_most_slots_are_in_flight(
            slots in 0usize..9,
            count in 0usize..50,
        ) {
            let mut flight = Flight::new(slots);
            let mut ended = Vec::new();
            for request in 0..count {
                prop_assert!(request - ended.len() < slots.max(1));
                ended.extend(flight.add(request));
            }
            prop_assert_eq!(&ended, &(0..ended.len()).collect::<Vec<_>>());
            prop_assert!(count - ended.len() < slots.max(1));
        }
    }
}
