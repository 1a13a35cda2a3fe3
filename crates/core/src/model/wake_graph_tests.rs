// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use proptest::prelude::*;

const MS: fn(u64) -> Duration = Duration::from_millis;
const US: fn(u64) -> Duration = Duration::from_micros;

fn id(pid: i32) -> ProcessId {
    ProcessId { pid, starttime: 1 }
}

const SERVER: i32 = 1;
const XWAYLAND: i32 = 2;
const A: i32 = 10;
const B: i32 = 11;
const LISTENER: i32 = 12;
const ANIMATION: i32 = 13;

/// A simulated session with a clock.
struct Session {
    graph: WakeGraph,
    now: Duration,
    /// Clients that are woken without input, and their periods.
    animations: Vec<(i32, Duration)>,
    busy: bool,
    random: u64,
}

impl Session {
    fn new() -> Session {
        let servers = [
            (id(SERVER), Server::Outermost),
            (id(XWAYLAND), Server::Nested),
        ];
        Session {
            graph: WakeGraph::new(servers.into()),
            now: MS(1000),
            animations: Vec::new(),
            busy: false,
            random: 1,
        }
    }

    /// A random pause between key presses, not synchronous with any display.
    fn pause(&mut self) -> Duration {
        let next = self.random.wrapping_mul(6_364_136_223_846_793_005);
        self.random = next.wrapping_add(1);
        US(5_000 + (self.random >> 33) % 400_000)
    }

    /// Simulates an input after `pause` that the outer server delivers to `receivers`. Returns the
    /// guess 30 ms after the input.
    fn input_after(&mut self, pause: Duration, receivers: &[i32]) -> Option<i32> {
        self.input_through(pause, SERVER, receivers)
    }

    fn input(&mut self, receivers: &[i32]) -> Option<i32> {
        self.input_after(MS(90), receivers)
    }

    fn input_through(&mut self, pause: Duration, server: i32, to: &[i32]) -> Option<i32> {
        let from = self.now;
        let input = from + pause;
        self.now = input + MS(30);
        let mut wakes = Vec::new();
        if server != SERVER {
            wakes.push((input + US(200), SERVER, server));
        }
        wakes.extend(to.iter().map(|&pid| (input + US(400), server, pid)));
        for &(pid, every) in &self.animations {
            let mut frame = 1 + from.as_nanos() / every.as_nanos();
            while every * u32::try_from(frame).unwrap() < self.now {
                wakes.push((every * u32::try_from(frame).unwrap(), SERVER, pid));
                frame += 1;
            }
        }
        wakes.sort_unstable();
        let wakes: Vec<Wake> = wakes
            .into_iter()
            .map(|(at, waker, woken)| Wake {
                at,
                waker: id(waker),
                woken: id(woken),
            })
            .collect();
        self.graph.observe(Seen {
            from,
            until: self.now,
            inputs: &[input],
            wakes: &wakes,
            busy: self.busy,
        });
        self.graph.front().map(|front| front.pid)
    }

    /// Repeats the same input. Returns the last guess.
    fn inputs(&mut self, count: u32, receivers: &[i32]) -> Option<i32> {
        for _ in 1..count {
            self.input(receivers);
        }
        self.input(receivers)
    }
}

#[test]
fn second_input_makes_a_guess() {
    let mut session = Session::new();
    assert_eq!(session.input(&[A]), None);
    assert_eq!(session.input(&[A]), Some(A));
    let grounds = session.graph.grounds().unwrap();
    assert_eq!((grounds.woken, grounds.of), (2, 2));
}

#[test]
fn app_that_ignores_key_releases_is_found_by_presses() {
    let mut session = Session::new();
    for (app, other) in [(A, None), (B, Some(A))] {
        // The first app needs two rounds, because its rate of chance wakes is not known yet.
        for _ in 0..if other.is_none() { 2 } else { 1 } {
            assert_eq!(session.input(&[app]), other);
            assert_eq!(session.input(&[]), other);
        }
        assert_eq!(session.input(&[app]), Some(app));
        assert_eq!(session.inputs(2, &[]), Some(app));
    }
}

#[test]
fn next_app_takes_over_with_its_second_exclusive_input() {
    let mut session = Session::new();
    session.inputs(20, &[A]);
    // A click: the previous app is woken too, because it has lost the focus.
    assert_eq!(session.input(&[A, B]), Some(A));
    assert_eq!(session.input(&[B]), Some(A));
    assert_eq!(session.inputs(20, &[B]), Some(B));
    // A switch by keyboard wakes only the next app.
    assert_eq!(session.input(&[A]), Some(B));
    assert_eq!(session.input(&[A]), Some(A));
}

#[test]
fn animation_is_never_taken_for_the_foreground_app() {
    for hz in [24, 60, 144, 240, 1000] {
        let mut session = Session::new();
        session.animations = vec![(ANIMATION, Duration::from_secs(1) / hz)];
        session.inputs(2, &[A]);
        for round in 0..200 {
            let pause = session.pause();
            let guess = session.input_after(pause, &[A]);
            assert_eq!(guess, Some(A), "{hz} Hz, input {round}");
        }
        for round in 0..200 {
            let pause = session.pause();
            let guess = session.input_after(pause, &[]);
            assert_ne!(guess, Some(ANIMATION), "{hz} Hz, input {round}");
        }
    }
}

#[test]
fn animation_in_the_foreground_is_found_by_its_inputs() {
    for hz in [24, 60, 144] {
        let mut session = Session::new();
        session.animations = vec![(ANIMATION, Duration::from_secs(1) / hz)];
        session.inputs(10, &[A]);
        assert_eq!(session.inputs(24, &[ANIMATION]), Some(ANIMATION), "{hz} Hz");
    }
}

#[test]
fn listener_is_recognised_at_the_first_change_of_the_focus() {
    let mut session = Session::new();
    assert_eq!(session.inputs(10, &[A, LISTENER]), None, "two candidates");
    assert_eq!(session.inputs(4, &[B, LISTENER]), Some(B));
    assert_eq!(session.inputs(40, &[B, LISTENER]), Some(B));
    assert_eq!(session.inputs(4, &[A, LISTENER]), Some(A));
    // The foreground app misses some inputs.
    assert_eq!(session.inputs(3, &[LISTENER]), Some(A));
    // A listener that was the only candidate gives way to the foreground app.
    let mut session = Session::new();
    session.inputs(10, &[LISTENER]);
    assert_eq!(session.inputs(4, &[A, LISTENER]), Some(A));
}

#[test]
fn window_manager_that_receives_every_press_is_not_the_guess() {
    let mut session = Session::new();
    for round in 0..50 {
        session.input(&[LISTENER, A]);
        let guess = session.input(&[A]);
        assert!(round == 0 || guess == Some(A), "{round}: {guess:?}");
    }
}

#[test]
fn guess_survives_a_shortcut_but_not_an_empty_workspace() {
    let mut session = Session::new();
    session.inputs(5, &[A]);
    assert_eq!(session.inputs(DOUBTS - 1, &[]), Some(A));
    assert_eq!(session.inputs(2, &[A]), Some(A));
    assert_eq!(session.inputs(DOUBTS, &[]), None);
    assert_eq!(session.inputs(2, &[A]), Some(A));
}

#[test]
fn busy_app_stays_the_guess_without_wakes() {
    let mut session = Session::new();
    session.inputs(5, &[A]);
    session.busy = true;
    assert_eq!(session.inputs(50, &[]), Some(A));
    assert_eq!(
        session.inputs(2, &[B]),
        Some(B),
        "the user switched to another app"
    );
}

#[test]
fn nested_server_delivers_input_of_the_outer_one() {
    let mut session = Session::new();
    for _ in 0..3 {
        session.input_through(MS(90), XWAYLAND, &[A]);
    }
    assert_eq!(session.graph.front(), Some(id(A)));
    // Wakes by the nested server alone are not input.
    for _ in 0..10 {
        let from = session.now;
        let input = from + MS(90);
        session.now = input + MS(30);
        session.graph.observe(Seen {
            from,
            until: session.now,
            inputs: &[input],
            wakes: &[Wake {
                at: input + US(100),
                waker: id(XWAYLAND),
                woken: id(B),
            }],
            busy: true,
        });
    }
    assert_eq!(session.graph.front(), Some(id(A)));
}

#[test]
fn ended_app_is_not_in_the_foreground() {
    let mut session = Session::new();
    session.inputs(5, &[A]);
    session.graph.ended(id(A));
    assert_eq!(session.graph.front(), None);
    assert_eq!(session.graph.grounds(), None);
}

#[test]
fn key_press_with_immediate_release_is_one_input() {
    let late = US(20) + WITHIN;
    assert_eq!(windows(&[US(10), US(11), WITHIN, late]), [US(10), late]);
}

/// Simulates sessions with an animation in the background. The random events are the same in every
/// run.
#[test]
fn guess_follows_the_focus_despite_chance_wakes() {
    let (mut looked, mut late) = (0, 0);
    for hz in [1, 5, 10, 24, 60, 75, 144] {
        for seed in 0..30 {
            let mut session = Session::new();
            session.animations = vec![(ANIMATION, Duration::from_secs(1) / hz)];
            session.random = seed;
            session.inputs(2, &[A]);
            for change in 0..8 {
                let app = A + change % 3 * 10;
                for input in 0..12 {
                    let pause = session.pause();
                    let guess = session.input_after(pause, &[app]);
                    assert_ne!(guess, Some(ANIMATION), "{hz} Hz, {seed}");
                    looked += 1;
                    late += u32::from(input >= 3 && guess != Some(app));
                }
            }
        }
    }
    assert!(late * 1000 <= looked, "{late} of {looked}");
}

fn processes() -> impl Strategy<Value = i32> {
    1..8i32
}

proptest! {
    /// The foreground client was woken by inputs and is not a display server.
    #[test]
    fn foreground_client_was_woken_by_inputs(
        looks in prop::collection::vec(
            (1..200u64, prop::collection::vec((0..12_000u64, processes(), processes()), 0..8), any::<bool>()),
            1..60,
        ),
    ) {
        let mut graph = Session::new().graph;
        let mut now = MS(1000);
        let mut woken = BTreeMap::<i32, u32>::new();
        for (pause, wakes, busy) in looks {
            let (from, input) = (now, now + MS(pause));
            now = input + MS(30);
            let mut wakes: Vec<Wake> = wakes
                .into_iter()
                .map(|(after, waker, pid)| Wake {
                    at: input + US(after),
                    waker: id(waker),
                    woken: id(pid),
                })
                .collect();
            wakes.sort_by_key(|wake| wake.at);
            let hit: BTreeSet<i32> = wakes
                .iter()
                .filter(|wake| wake.at <= input + WITHIN)
                .map(|wake| wake.woken.pid)
                .collect();
            for pid in hit {
                *woken.entry(pid).or_default() += 1;
            }
            graph.observe(Seen { from, until: now, inputs: &[input], wakes: &wakes, busy });
            if let Some(front) = graph.front() {
                prop_assert!(woken.get(&front.pid).is_some_and(|&times| times >= ALONE));
                prop_assert!(![SERVER, XWAYLAND].contains(&front.pid));
                let grounds = graph.grounds().unwrap();
                prop_assert!(grounds.woken <= grounds.of);
            }
        }
    }

    /// No trace data causes a panic.
    #[test]
    fn any_times_are_accepted(
        inputs in prop::collection::vec(any::<u32>(), 0..20),
        wakes in prop::collection::vec((any::<u32>(), processes(), processes()), 0..20),
        from in any::<u32>(), until in any::<u32>(), busy in any::<bool>(),
    ) {
        let mut graph = Session::new().graph;
        let mut inputs: Vec<Duration> = inputs.into_iter().map(|us| US(us.into())).collect();
        inputs.sort_unstable();
        let wakes: Vec<Wake> = wakes
            .into_iter()
            .map(|(at, waker, woken)| Wake { at: US(at.into()), waker: id(waker), woken: id(woken) })
            .collect();
        for _ in 0..2 {
            graph.observe(Seen {
                from: US(from.into()),
                until: US(until.into()),
                inputs: &inputs,
                wakes: &wakes,
                busy,
            });
        }
        prop_assert!(graph.clients().count() <= CLIENTS_MAX);
    }
}
