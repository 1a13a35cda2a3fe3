// SPDX-License-Identifier: GPL-2.0-or-later
//! CPU-bound programs: EIMOS's nested loop of additions, Linpack, a task that draws a frame 60
//! times a second, and a build.

use std::hint::black_box;
use std::io::{self, BufRead};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};

use crate::memory::{now_ns, Mapping};
use crate::random::Random;
use crate::scenario::Spin;

/// Additions in the inner loop, and repetitions of the inner loop in one run. The total is that of
/// EIMOS's loop.
const INNER: u64 = 1000;
const OUTER: u64 = 1000;
/// Order of Linpack's matrix, and systems solved per run.
const ORDER: usize = 100;
const SYSTEMS: usize = 2;
/// Time between two frames, for 60 frames a second.
const FRAME_NS: u64 = 16_666_667;
/// Outer loops to draw a frame: about a fifth of the frame time.
const DRAW: u64 = 600;
/// Concurrent jobs of a build, as with `make -j8`.
const JOBS: usize = 8;
/// Memory and work of one compiler process.
const COMPILER_PAGES: usize = 64;
const COMPILER_OUTER: u64 = 500;

/// Parameters of a CPU-bound program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// The kind of work.
    pub spin: Spin,
    /// The process name to set; `None` keeps the program's own.
    pub name: Option<String>,
}

/// An app's answer to `go`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Done {
    /// Time of each run, in nanoseconds.
    pub runs_ns: Vec<u64>,
    /// CPU time of all runs, in nanoseconds.
    pub cpu_ns: u64,
    /// From when a frame was due until its drawing began, in nanoseconds.
    pub wake_ns: Vec<u64>,
    /// From when a frame was due until it was drawn, in nanoseconds.
    pub frame_ns: Vec<u64>,
    /// Frames not finished when the next one was due.
    pub missed: u64,
}

/// A foreground app: for each command `go RUNS`, it does its work RUNS times and answers with the
/// times.
pub fn app(spec: &Spec) -> Result<()> {
    if let Some(name) = &spec.name {
        take_name(name)?;
    }
    for line in io::stdin().lock().lines() {
        let line = line?;
        let runs = line.strip_prefix("go ").and_then(|runs| runs.parse().ok());
        let Some(runs) = runs else {
            bail!("the app does not expect {line:?}");
        };
        let done = match spec.spin {
            Spin::Frames => frames(runs),
            spin => timed(runs, spin),
        };
        println!("{}", serde_json::to_string(&done)?);
    }
    Ok(())
}

/// A background load: does its work repeatedly until its process is killed.
pub fn load(spin: Spin) -> Result<()> {
    match spin {
        Spin::Build => build(),
        spin => loop {
            once(spin);
        },
    }
}

/// Sets the name of this process.
pub fn take_name(name: &str) -> Result<()> {
    let name = std::ffi::CString::new(name)?;
    // SAFETY: `name` is a valid string; the kernel copies it.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    Ok(())
}

fn once(spin: Spin) {
    match spin {
        Spin::AddLoop => add_loop(OUTER),
        Spin::Linpack => {
            black_box(linpack(SYSTEMS));
        }
        Spin::Frames => add_loop(DRAW),
        Spin::Build => add_loop(COMPILER_OUTER),
    }
}

fn timed(runs: usize, spin: Spin) -> Done {
    let mut done = Done::default();
    let spent = thread_cpu_ns();
    for _ in 0..runs {
        let start = now_ns();
        once(spin);
        done.runs_ns.push(now_ns() - start);
    }
    done.cpu_ns = thread_cpu_ns() - spent;
    done
}

/// The nested loop of additions.
pub fn add_loop(outer: u64) {
    let mut sum = 0u64;
    for i in 0..outer {
        for j in 0..INNER {
            sum = black_box(sum.wrapping_add(i ^ j));
        }
    }
    black_box(sum);
}

fn frames(count: usize) -> Done {
    let mut done = Done::default();
    let mut due = now_ns() + FRAME_NS;
    for _ in 0..count {
        sleep_until(due);
        let woken = now_ns();
        once(Spin::Frames);
        let drawn = now_ns();
        done.wake_ns.push(woken - due);
        done.frame_ns.push(drawn - due);
        done.missed += u64::from(drawn > due + FRAME_NS);
        // A missed frame is skipped, as on a display.
        let passed = drawn.saturating_sub(due) / FRAME_NS;
        due += (passed + 1) * FRAME_NS;
    }
    done
}

fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sleeps until this time of the monotonic clock.
pub fn sleep_until(at_ns: u64) {
    let time = libc::timespec {
        tv_sec: (at_ns / 1_000_000_000) as _,
        tv_nsec: (at_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: `time` is valid. An interrupted sleep would only be shorter, and no signal is handled
    // here.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &time,
            std::ptr::null_mut(),
        )
    };
}

/// Keeps [`JOBS`] short-lived compilers running.
fn build() -> Result<()> {
    let mut jobs: Vec<Child> = Vec::new();
    loop {
        while jobs.len() < JOBS {
            let job = Command::new("/proc/self/exe").arg("compiler").spawn();
            jobs.push(job.context("a build cannot start a compiler")?);
        }
        jobs.retain_mut(|job| matches!(job.try_wait(), Ok(None)));
        sleep(Duration::from_millis(1));
    }
}

/// One compiler of a build: touches some memory, computes, exits.
pub fn compiler() -> Result<()> {
    let mut memory = Mapping::anonymous(COMPILER_PAGES * crate::memory::PAGE)?;
    for page in 0..memory.pages() {
        memory.dirty_page(page, 1);
    }
    once(Spin::Build);
    Ok(())
}

/// Solves systems of linear equations; returns the largest error of a solution.
fn linpack(systems: usize) -> f64 {
    let mut worst = 0.0f64;
    for seed in 1..=systems as u64 {
        let mut matrix = Matrix::random(ORDER, seed);
        let mut right = matrix.times_ones();
        let solution = matrix.factor().map(|pivots| {
            matrix.solve(&pivots, &mut right);
            right
        });
        for value in solution.unwrap_or_default() {
            worst = worst.max((value - 1.0).abs());
        }
    }
    worst
}

/// A square matrix in column-major order.
struct Matrix {
    order: usize,
    columns: Vec<f64>,
}

impl Matrix {
    fn random(order: usize, seed: u64) -> Matrix {
        let mut random = Random::new(seed);
        let mut value = || random.below(1 << 20) as f64 / f64::from(1 << 19) - 1.0;
        Matrix {
            order,
            columns: (0..order * order).map(|_| value()).collect(),
        }
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        self.columns[column * self.order + row]
    }

    /// The product with a vector of ones: the right-hand side with a known solution.
    fn times_ones(&self) -> Vec<f64> {
        let row = |row| (0..self.order).map(|column| self.at(row, column)).sum();
        (0..self.order).map(row).collect()
    }

    /// Gaussian elimination with partial pivoting, in place: the multipliers below the diagonal,
    /// the upper triangle above. Returns the pivot row of each step; `None` when the matrix is
    /// singular.
    fn factor(&mut self) -> Option<Vec<usize>> {
        let order = self.order;
        let mut pivots = Vec::with_capacity(order);
        for step in 0..order {
            let size = |row: &usize| self.at(*row, step).abs();
            let pivot = (step..order).max_by(|a, b| size(a).total_cmp(&size(b)))?;
            if self.at(pivot, step) == 0.0 {
                return None;
            }
            pivots.push(pivot);
            self.columns.swap(step * order + step, step * order + pivot);
            let scale = -1.0 / self.at(step, step);
            for row in step + 1..order {
                self.columns[step * order + row] *= scale;
            }
            let (left, right) = self.columns.split_at_mut((step + 1) * order);
            let multipliers = &left[step * order..];
            for column in right.chunks_exact_mut(order) {
                column.swap(step, pivot);
                let factor = column[step];
                for (value, multiplier) in
                    column[step + 1..].iter_mut().zip(&multipliers[step + 1..])
                {
                    *value += factor * multiplier;
                }
            }
        }
        Some(pivots)
    }

    /// Solves for one right-hand side with the factors from [`Matrix::factor`].
    fn solve(&self, pivots: &[usize], right: &mut [f64]) {
        let order = self.order;
        for (step, &pivot) in pivots.iter().enumerate() {
            right.swap(step, pivot);
            let factor = right[step];
            let below = step + 1..order;
            subtract(
                &mut right[below.clone()],
                -factor,
                &self.column(step)[below],
            );
        }
        for step in (0..order).rev() {
            right[step] /= self.at(step, step);
            let factor = right[step];
            subtract(&mut right[..step], factor, &self.column(step)[..step]);
        }
    }

    fn column(&self, column: usize) -> &[f64] {
        &self.columns[column * self.order..(column + 1) * self.order]
    }
}

/// Subtracts a multiple of one vector from another.
fn subtract(from: &mut [f64], factor: f64, vector: &[f64]) {
    for (value, other) in from.iter_mut().zip(vector) {
        *value -= factor * other;
    }
}

/// Floating-point operations in one run of Linpack, by Linpack's formula for each system.
pub fn linpack_flops() -> f64 {
    let n = ORDER as f64;
    SYSTEMS as f64 * (2.0 / 3.0 * n * n * n + 2.0 * n * n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linpack_finds_the_solution() {
        assert!(linpack(3) < 1e-9, "{}", linpack(3));
    }

    #[test]
    fn singular_matrix_is_detected() {
        let mut matrix = Matrix {
            order: 2,
            columns: vec![1.0, 2.0, 2.0, 4.0],
        };
        assert_eq!(matrix.factor(), None);
    }

    #[test]
    fn rows_are_swapped_when_the_pivot_is_zero() {
        let mut matrix = Matrix {
            order: 2,
            columns: vec![0.0, 2.0, 4.0, 6.0],
        };
        let mut right = vec![8.0, 16.0];
        let pivots = matrix.factor().unwrap();
        assert_eq!(pivots, [1, 1]);
        matrix.solve(&pivots, &mut right);
        assert_eq!(right, [2.0, 2.0]);
    }

    #[test]
    fn frames_are_due_every_sixtieth_of_a_second() {
        let start = now_ns();
        let done = frames(3);
        assert!(now_ns() - start >= 3 * FRAME_NS);
        assert_eq!((done.wake_ns.len(), done.frame_ns.len()), (3, 3));
        let later = done.wake_ns.iter().zip(&done.frame_ns);
        assert!(later.clone().all(|(woken, drawn)| woken <= drawn));
    }
}
