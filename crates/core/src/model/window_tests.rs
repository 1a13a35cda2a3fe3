// SPDX-License-Identifier: GPL-2.0-or-later
//! Response windows case by case, and their invariants.

use super::*;
use crate::model::app::app;
use proptest::prelude::*;

const MS: fn(u64) -> Duration = Duration::from_millis;

fn windows() -> Windows {
    Windows::new(WindowSettings::default())
}

/// Reports input without delay.
fn input(windows: &mut Windows, pid: i32, ms: u64) -> Opening {
    windows.input(&app(pid), MS(ms), MS(ms))
}

fn frame(windows: &mut Windows, pid: i32, ms: u64) -> Closing {
    windows.frame(Some(app(pid).key), MS(ms))
}

fn answers(windows: &Windows, pid: i32) -> u64 {
    let name = format!("app{pid}");
    let apps = windows.apps();
    apps.iter()
        .find(|app| app.name == name)
        .map_or(0, |app| app.answers)
}

#[test]
fn input_opens_and_frame_closes_the_window() {
    let mut windows = windows();
    assert_eq!(
        input(&mut windows, 1, 100),
        Opening::Opened { ends: MS(600) }
    );
    assert_eq!(windows.next_deadline(), Some(MS(600)));
    assert_eq!(frame(&mut windows, 1, 140), Closing::Answered(MS(40)));
    assert_eq!(windows.open(), None);
    assert_eq!(windows.next_deadline(), None);
    let app = &windows.apps()[0];
    assert_eq!((app.answers, app.late, app.unanswered), (1, 0, 0));
    assert!(app.took.p50.abs_diff(MS(40)) <= MS(1), "{app:?}");
}

#[test]
fn overlapping_inputs_share_one_window_timed_from_the_first() {
    let mut windows = windows();
    input(&mut windows, 1, 100);
    assert_eq!(input(&mut windows, 1, 130), Opening::Joined);
    assert_eq!(input(&mut windows, 1, 160), Opening::Joined);
    assert_eq!(windows.open().unwrap().inputs, 3);
    assert_eq!(
        windows.open().unwrap().ends,
        MS(600),
        "the first input sets the deadline"
    );
    assert_eq!(frame(&mut windows, 1, 170), Closing::Answered(MS(70)));
    assert_eq!(frame(&mut windows, 1, 190), Closing::Unasked);
    assert_eq!(
        (windows.tallies().opened, windows.tallies().inputs_joined),
        (1, 2)
    );
}

#[test]
fn input_without_a_frame_ends_at_the_deadline_and_is_not_recorded() {
    let mut windows = windows();
    input(&mut windows, 1, 100);
    windows.pass_time(MS(599));
    assert!(windows.open().is_some());
    windows.pass_time(MS(600));
    assert!(windows.open().is_none());
    assert_eq!(
        input(&mut windows, 1, 1000),
        Opening::Opened { ends: MS(1500) }
    );
    frame(&mut windows, 1, 1010);
    let app = &windows.apps()[0];
    assert_eq!((app.answers, app.unanswered), (1, 1));
    assert!(
        app.took.max < MS(11),
        "the time starts at the answered input"
    );
}

#[test]
fn late_answer_is_recorded_and_extends_the_app_s_deadline() {
    let mut windows = windows();
    input(&mut windows, 1, 0);
    windows.pass_time(MS(500));
    assert_eq!(frame(&mut windows, 1, 800), Closing::Late(MS(800)));
    assert_eq!(
        input(&mut windows, 1, 1000),
        Opening::Opened { ends: MS(4200) }
    );
    assert_eq!(frame(&mut windows, 1, 1800), Closing::Answered(MS(800)));
    let app = &windows.apps()[0];
    assert_eq!((app.answers, app.late), (2, 1));
    // Another app has its own deadline.
    assert_eq!(
        input(&mut windows, 2, 2000),
        Opening::Opened { ends: MS(2500) }
    );
}

#[test]
fn frame_after_the_largest_deadline_answers_nothing() {
    let mut windows = windows();
    input(&mut windows, 1, 0);
    assert_eq!(frame(&mut windows, 1, 5001), Closing::Unasked);
    let tallies = windows.tallies();
    assert_eq!(
        (tallies.expired, tallies.unanswered, tallies.late),
        (1, 1, 0)
    );
    assert_eq!(answers(&windows, 1), 0);
}

#[test]
fn lateness_depends_on_the_time_of_the_frame() {
    let mut windows = windows();
    input(&mut windows, 1, 0);
    // The deadline at 500 ms was not checked.
    assert_eq!(frame(&mut windows, 1, 700), Closing::Late(MS(700)));
    assert_eq!((windows.tallies().expired, windows.tallies().late), (1, 1));
}

#[test]
fn animations_open_nothing_and_old_frames_answer_nothing() {
    let mut windows = windows();
    for ms in 0..100 {
        assert_eq!(frame(&mut windows, 1, ms * 16), Closing::Unasked);
    }
    assert_eq!(windows.tallies().frames_unasked, 100);
    assert_eq!(windows.apps(), []);
    input(&mut windows, 1, 2000);
    assert_eq!(frame(&mut windows, 1, 1999), Closing::Unasked);
    assert!(windows.open().is_some());
    assert_eq!(frame(&mut windows, 1, 2016), Closing::Answered(MS(16)));
}

#[test]
fn frame_of_another_app_closes_nothing_but_one_of_the_display_does() {
    let mut windows = windows();
    input(&mut windows, 1, 0);
    assert_eq!(frame(&mut windows, 2, 10), Closing::Elsewhere);
    assert!(windows.open().is_some());
    assert_eq!(windows.frame(None, MS(20)), Closing::Answered(MS(20)));
}

#[test]
fn window_follows_the_focus_and_records_no_response() {
    let mut windows = windows();
    input(&mut windows, 1, 0);
    windows.topmost(Some(&app(1)), None);
    windows.topmost(Some(&app(2)), None);
    assert_eq!(windows.open().unwrap().app, app(2).key);
    assert_eq!(
        frame(&mut windows, 1, 30),
        Closing::Elsewhere,
        "a frame of the previous app"
    );
    assert_eq!(frame(&mut windows, 2, 90), Closing::Moved);
    assert!(windows.open().is_none());
    assert_eq!((answers(&windows, 1), answers(&windows, 2)), (0, 0));
    assert_eq!(windows.tallies().moved, 1);
}

#[test]
fn moved_window_ends_at_its_deadline_too() {
    let mut windows = windows();
    input(&mut windows, 1, 0);
    windows.topmost(Some(&app(2)), None);
    windows.pass_time(MS(500));
    assert!(windows.open().is_none());
    assert_eq!(frame(&mut windows, 2, 700), Closing::Unasked);
    assert_eq!((windows.tallies().moved, windows.tallies().late), (1, 0));
}

#[test]
fn window_is_abandoned_without_a_topmost_app() {
    let mut windows = windows();
    input(&mut windows, 1, 0);
    windows.topmost(None, None);
    assert!(windows.open().is_none());
    assert_eq!(windows.tallies().abandoned, 1);
    windows.input_elsewhere();
    assert_eq!(windows.tallies().inputs_elsewhere, 1);
}

#[test]
fn input_reported_after_its_frame_is_answered_at_once() {
    let mut windows = windows();
    assert_eq!(frame(&mut windows, 1, 110), Closing::Unasked);
    let late = windows.input(&app(1), MS(100), MS(115));
    assert_eq!(late, Opening::Answered(MS(10)));
    assert!(windows.open().is_none());
    // Another app's frame does not answer it.
    let mut windows = self::windows();
    frame(&mut windows, 2, 110);
    let waits = windows.input(&app(1), MS(100), MS(115));
    assert_eq!(waits, Opening::Opened { ends: MS(600) });
}

#[test]
fn disabled_windows_never_open() {
    let off = WindowSettings {
        enabled: false,
        ..WindowSettings::default()
    };
    let mut windows = windows();
    input(&mut windows, 1, 0);
    windows.configure(off);
    assert!(windows.open().is_none());
    assert_eq!(input(&mut windows, 1, 10), Opening::Off);
}

#[test]
fn least_recently_used_app_is_forgotten() {
    let mut windows = Windows::new(WindowSettings {
        apps: 2,
        ..WindowSettings::default()
    });
    for (at, pid) in [1, 2, 1, 3].into_iter().enumerate() {
        input(&mut windows, pid, at as u64 * 1000);
        frame(&mut windows, pid, at as u64 * 1000 + 10);
    }
    let names: Vec<String> = windows.apps().into_iter().map(|app| app.name).collect();
    assert_eq!(names, ["app3", "app1"]);
}

/// A random event.
#[derive(Debug, Clone)]
enum Step {
    Input(i32),
    Frame(Option<i32>),
    Focus(Option<i32>),
    Clock,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..4i32).prop_map(Step::Input),
        4 => prop::option::of(1..4i32).prop_map(Step::Frame),
        1 => prop::option::of(1..4i32).prop_map(Step::Focus),
        2 => Just(Step::Clock),
    ]
}

proptest! {
    /// Every window ends exactly once or is still open, every recorded time belongs to an answer,
    /// no window outlives its deadline, and the number of known apps is bounded.
    #[test]
    fn windows_are_conserved(steps in prop::collection::vec((step(), 0..900u64), 0..200)) {
        let settings = WindowSettings { apps: 2, ..WindowSettings::default() };
        let mut windows = Windows::new(settings);
        let mut front = None;
        let mut now = 0;
        let mut recorded = 0;
        for (step, pause) in steps {
            now += pause;
            match step {
                // The daemon reports input for the foreground app only.
                Step::Input(pid) => match front {
                    Some(topmost) if topmost == pid => {
                        if let Opening::Opened { ends } = input(&mut windows, pid, now) {
                            prop_assert!(ends > MS(now) && ends <= MS(now) + settings.deadline_max);
                        }
                    }
                    _ => windows.input_elsewhere(),
                },
                Step::Frame(pid) => {
                    let closing = windows.frame(pid.map(|pid| app(pid).key), MS(now));
                    if let Closing::Answered(took) | Closing::Late(took) = closing {
                        prop_assert!(took <= settings.deadline_max);
                        recorded += 1;
                    }
                }
                Step::Focus(pid) => {
                    front = pid;
                    windows.topmost(pid.map(app).as_ref(), None);
                    let open = windows.open().map(|window| window.app);
                    prop_assert!(open.is_none_or(|open| pid.map(|pid| app(pid).key) == Some(open)));
                }
                Step::Clock => {
                    windows.pass_time(MS(now));
                    prop_assert!(windows.next_deadline().is_none_or(|at| at > MS(now)));
                }
            }
            let t = windows.tallies();
            let pending = u64::from(windows.current.is_some());
            let ended = t.answered + t.late + t.unanswered + t.moved + t.abandoned;
            prop_assert_eq!(t.opened, ended + pending);
            let over = u64::from(windows.current.as_ref().is_some_and(|window| window.over));
            prop_assert_eq!(t.expired, t.late + t.unanswered + over);
            prop_assert_eq!(t.answered + t.late, recorded);
            prop_assert!(windows.apps().len() <= 2);
        }
    }

    /// One input and its frame give the same time in either order of arrival.
    #[test]
    fn order_does_not_matter(at in 0..10_000u64, took in 1..400u64) {
        let (mut straight, mut crossed) = (windows(), windows());
        straight.input(&app(1), MS(at), MS(at));
        let closing = frame(&mut straight, 1, at + took);
        prop_assert_eq!(closing, Closing::Answered(MS(took)));
        frame(&mut crossed, 1, at + took);
        crossed.input(&app(1), MS(at), MS(at + took));
        prop_assert_eq!(straight.apps(), crossed.apps());
    }
}

#[test]
fn users_of_the_same_program_have_separate_answers() {
    let mut windows = windows();
    for (owner, took) in [(1000, 20), (1001, 90)] {
        windows.topmost(Some(&app(1)), Some(owner));
        let at = u64::from(owner) * 1000;
        input(&mut windows, 1, at);
        frame(&mut windows, 1, at + took);
    }
    let seen = windows.apps();
    assert_eq!(seen.len(), 2);
    let of = |owner| seen.iter().find(|one| one.owner == Some(owner)).unwrap();
    assert_eq!((of(1000).answers, of(1001).answers), (1, 1));
    assert!(of(1000).took.max < of(1001).took.max);
}

#[test]
fn last_forty_response_times_are_kept_in_order() {
    let mut windows = windows();
    for number in 1..=50 {
        let at = number * 1000;
        input(&mut windows, 1, at);
        frame(&mut windows, 1, at + number);
    }
    let recent = &windows.apps()[0].recent;
    let expected: Vec<Duration> = (11..=50).map(MS).collect();
    assert_eq!(*recent, expected);
}
