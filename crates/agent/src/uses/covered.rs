// SPDX-License-Identifier: GPL-2.0-or-later
//! Computes the visible part of a window below other windows.

/// A window's area on the screen, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rect {
    pub left: i32,
    pub top: i32,
    /// First column outside of the area; `bottom` is the first row outside.
    pub right: i32,
    pub bottom: i32,
}

/// Once a window is cut into more pieces than this, further windows above it are ignored.
const PIECES_MAX: usize = 256;

impl Rect {
    /// Area in pixels; 0 for an inverted rectangle.
    pub fn area(&self) -> u64 {
        let side = |from: i32, to: i32| u64::try_from(i64::from(to) - i64::from(from)).unwrap_or(0);
        side(self.left, self.right) * side(self.top, self.bottom)
    }

    /// The intersection of two rectangles.
    pub fn common(&self, other: &Rect) -> Rect {
        Rect {
            left: self.left.max(other.left),
            top: self.top.max(other.top),
            right: self.right.min(other.right),
            bottom: self.bottom.min(other.bottom),
        }
    }

    /// The parts of this rectangle that `above` does not cover: at most four.
    fn without(self, above: &Rect) -> impl Iterator<Item = Rect> {
        let common = self.common(above);
        let apart = common.area() == 0;
        let whole = apart.then_some(self);
        let pieces = [
            Rect {
                bottom: common.top,
                ..self
            },
            Rect {
                top: common.bottom,
                ..self
            },
            Rect {
                top: common.top,
                bottom: common.bottom,
                right: common.left,
                ..self
            },
            Rect {
                top: common.top,
                bottom: common.bottom,
                left: common.right,
                ..self
            },
        ];
        let pieces = pieces.into_iter().filter(move |_| !apart);
        whole
            .into_iter()
            .chain(pieces)
            .filter(|piece| piece.area() > 0)
    }
}

/// Number of pixels of a window that no window `above` covers.
pub fn uncovered(window: Rect, above: &[Rect]) -> u64 {
    let mut pieces = vec![window];
    for cover in above {
        pieces = pieces
            .into_iter()
            .flat_map(|piece| piece.without(cover))
            .collect();
        if pieces.is_empty() || pieces.len() > PIECES_MAX {
            break;
        }
    }
    pieces.iter().map(Rect::area).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rect() -> impl Strategy<Value = Rect> {
        (-4..12i32, -4..12i32, 0..10i32, 0..10i32).prop_map(|(left, top, width, height)| Rect {
            left,
            top,
            right: left + width,
            bottom: top + height,
        })
    }

    proptest! {
        /// Compares with a check of every pixel.
        #[test]
        fn uncovered_area_equals_the_number_of_uncovered_pixels(
            window in rect(),
            above in prop::collection::vec(rect(), 0..6),
        ) {
            let holds = |rect: &Rect, x: i32, y: i32| {
                (rect.left..rect.right).contains(&x) && (rect.top..rect.bottom).contains(&y)
            };
            let all = (-4..24).flat_map(|x| (-4..24).map(move |y| (x, y)));
            let seen = all.filter(|&(x, y)| {
                holds(&window, x, y) && !above.iter().any(|cover| holds(cover, x, y))
            });
            prop_assert_eq!(uncovered(window, &above), seen.count() as u64);
        }

        #[test]
        fn no_numbers_overflow(left in any::<i32>(), top in any::<i32>(), right in any::<i32>(), bottom in any::<i32>()) {
            let rect = Rect { left, top, right, bottom };
            uncovered(rect, &[Rect { left: top, top: right, right: bottom, bottom: left }]);
        }
    }
}
