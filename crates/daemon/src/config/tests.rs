// SPDX-License-Identifier: GPL-2.0-or-later

use super::keys::ms;
use super::*;
use limelight_core::model::class::{Class, Identity};
use limelight_core::model::never::{Exception, Never};
use limelight_core::settings::{BoostSettings, PrezeroSettings, SwapSettings, WindowSettings};
use proptest::prelude::*;

/// The default thresholds of a machine with 8 GiB of memory.
const MACHINE: Thresholds = Thresholds {
    total: 8192 << 20,
    kill: 204 << 20,
    swap: 819 << 20,
};

fn loaded(file: &Path) -> Result<Config, ConfigErrors> {
    Ok(load_files(&with_drop_ins(file)?, &MACHINE)?.config)
}

/// Mistakes and their messages, word for word.
#[test]
fn error_messages_are_exact() {
    let golden: &[(&str, &[(usize, &str)])] = &[
        (
            "[protect]\nbudget_percent = 95\n",
            &[(2, "`budget_percent` in [protect] is 95; allowed: a whole number from 1 to 90")],
        ),
        (
            "\n[protect]\nbudget = 60\n",
            &[(
                3,
                "unknown key `budget` in [protect] (did you mean `budget_percent`?); known keys: \
                 `enabled`, `budget_percent`, \
                 `oom_score_adj_points`, `lock_shared`, `adopt`, \
                 `own_scopes`",
            )],
        ),
        (
            "[foreground]\ngap_ms = \"2s\"\n[protekt]\nenabled = true\n",
            &[
                (2, "`gap_ms` in [foreground] is \"2s\"; allowed: a whole number from 0 to 60000"),
                (3, "unknown section [protekt] (did you mean [protect]?); known sections: \
                     [foreground], [sources], [protect], \
                     [boost], [premap], [readahead], [prezero], [swap], [window], [class], \
                     [never], [access], [kernel], [expert]"),
            ],
        ),
        (
            "[kernel]\ndevice = \"yes\"\n[sources]\noom_score_adj = true\n",
            &[
                (2, "`device` in [kernel] is \"yes\"; allowed: \"auto\", \"on\", \"off\""),
                (
                    4,
                    "`oom_score_adj` in [sources] is true; allowed: \"auto\", \"tracepoint\", \"scan\", \"off\"",
                ),
            ],
        ),
        (
            "[protect]\nenabled = 1\nbudget_percent = [5]\nadopt = 1.5\n",
            &[
                (2, "`enabled` in [protect] is 1; allowed: true or false"),
                (
                    3,
                    "`budget_percent` in [protect] is a value of type array; allowed: a whole number from 1 to 90",
                ),
                (4, "`adopt` in [protect] is 1.5; allowed: \"auto\", \"on\", \"off\""),
            ],
        ),
        (
            "[readahead]\nrate_mib = 0\ndirectory = \"records\"\n",
            &[
                (2, "`rate_mib` in [readahead] is 0; allowed: a whole number from 1 to 65536"),
                (
                    3,
                    "`directory` in [readahead] is \"records\"; allowed: an absolute path",
                ),
            ],
        ),
        (
            "[boost]\nnice_points = 40\nhelpers = [\"a-name-that-is-too-long\"]\ncpu_wieght = 1\n",
            &[
                (2, "`nice_points` in [boost] is 40; allowed: a whole number from 0 to 39"),
                (
                    3,
                    "`helpers` in [boost] is a value of type array; allowed: a list of names of 1 to 15 bytes each",
                ),
                (
                    4,
                    "unknown key `cpu_wieght` in [boost] (did you mean `cpu_weight`?); known keys: \
                     `enabled`, `cpu_weight`, \
                     `nice_points`, `io_weight`, `starting`, `terminal`, `helpers`, `extra_helpers`",
                ),
            ],
        ),
        (
            "[class]\nkeep = \"x\"\nnormal = [\"\"]\n",
            &[
                (2, "`keep` in [class] is \"x\"; allowed: a list of patterns of 1 to 1024 bytes each"),
                (
                    3,
                    "`normal` in [class] is a value of type array; allowed: a list of patterns of 1 to 1024 bytes each",
                ),
            ],
        ),
        ("protect = true\n", &[(1, "`protect` is a section: write [protect]")]),
        (
            "budget_percent = 60\nenabled = true\nbudget = 1\ncolour = 2\n",
            &[
                (1, "`budget_percent` is outside a section: write it below [protect]"),
                (
                    2,
                    "`enabled` is outside a section: write it below [protect] or [boost] or [premap] \
                     or [readahead] or [prezero] or [swap] or [window]",
                ),
                (
                    3,
                    "`budget` is outside a section, did you mean `budget_percent` in [protect]?",
                ),
                (4, "`colour` is outside a section, and no section has such a key"),
            ],
        ),
        (
            "[premap]\nkill = true\n[kernel]\ndevice = \"aut\"\n",
            &[
                (
                    2,
                    "unknown key `kill` in [premap] (did you mean the key of [swap]?); known keys: \
                     `enabled`",
                ),
                (
                    4,
                    "`device` in [kernel] is \"aut\" (did you mean \"auto\"?); allowed: \"auto\", \
                     \"on\", \"off\"",
                ),
            ],
        ),
    ];
    for (text, errors) in golden {
        let found = apply(&mut Config::default(), text, |_| None, &mut |_, _, _, _| {});
        let found: Vec<_> = found
            .iter()
            .map(|(line, text)| (*line, text.as_str()))
            .collect();
        assert_eq!(&found, errors, "{text}");
    }
}

#[test]
fn syntax_error_names_its_line() {
    let errors = apply(
        &mut Config::default(),
        "[protect]\nenabled = true\nadopt = \n",
        |_| None,
        &mut |_, _, _, _| {},
    );
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].0, 3, "{errors:?}");
    assert!(errors[0].1.starts_with("not TOML: "), "{errors:?}");
    let twice = apply(
        &mut Config::default(),
        "[protect]\nenabled = true\nenabled = false\n",
        |_| None,
        &mut |_, _, _, _| {},
    );
    assert_eq!(twice[0].0, 3, "{twice:?}");
}

#[test]
fn every_key_reaches_the_configuration() {
    let text = "
        [foreground]
        gap_ms = 3_000
        [sources]
        oom_score_adj = \"scan\"
        top_app = false
        evdev = \"on\"
        wake_graph = false
        [protect]
        enabled = false
        budget_percent = 40
        oom_score_adj_points = 0
        lock_shared = false
        adopt = \"on\"
        own_scopes = false
        [boost]
        enabled = false
        cpu_weight = 900
        nice_points = 5
        io_weight = 800
        starting = false
        terminal = false
        helpers = [\"Xorg\"]
        extra_helpers = [\"Xvnc\"]
        [premap]
        enabled = false
        [readahead]
        enabled = false
        rate_mib = 10
        cold_start = false
        record_mib = 20
        records = 7
        directory = \"/srv/records\"
        [prezero]
        enabled = false
        most_percent = 3
        [swap]
        enabled = false
        kill_percent = 4
        swap_percent = 12
        write_budget_mib = 9
        by_cost = false
        write_back = false
        ask = false
        throttle = true
        services = false
        freeze = false
        kill = false
        grace_ms = 500
        prefault_mib = 3
        [window]
        enabled = false
        apps = 3
        [class]
        keep = [\"a\"]
        normal = [\"b\"]
        disposable = [\"c\", \"d*\"]
        [never]
        boost = [\"e\"]
        protect = [\"f\"]
        close = [\"g\", \"h*\"]
        [access]
        group = \"wheel\"
        [kernel]
        device = \"on\"
        [expert]
        scan_interval_ms = 0x100
        protect_interval_ms = 250
        protect_ageing = true
        boost_slice_us = 50
        boost_io_level = 3
        premap_window_pages = 32
        prezero_engine = \"block\"
        prezero_block_device = \"/dev/vdz\"
        prezero_block_offset_mib = 7
        prezero_block_mib = 2
        prezero_block_trusted = true
        readahead_factor = 16
        readahead_record_s = 5
        window_deadline_ms = 300
        window_deadline_max_ms = 2000
    ";
    let mut config = Config::default();
    assert_eq!(apply(&mut config, text, |_| None, &mut |_, _, _, _| {}), []);
    assert_eq!(config.settings.topmost.gap, ms(3000));
    assert_eq!(config.oom_score_adj, OomScoreAdjSource::Scan);
    assert_eq!(config.scan_interval, ms(256));
    assert!(!config.top_app && !config.wake_graph);
    assert_eq!(config.evdev, EvdevSource::On);
    assert!(!config.settings.protect.enabled);
    assert_eq!(config.settings.protect.budget_percent, 40);
    assert_eq!(config.settings.protect.interval, ms(250));
    assert_eq!(config.settings.protect.oom_points, 0);
    assert!(!config.settings.protect.lock_shared);
    assert!(config.settings.protect.ageing);
    assert_eq!(config.adopt, Adopt::Always);
    assert!(!config.own_scopes);
    let boost = BoostSettings {
        enabled: false,
        cpu_weight: 900,
        nice_points: 5,
        slice_us: 100,
        io_weight: 800,
        io_level: 3,
        starting: false,
        terminal: false,
        helpers: vec!["Xorg".to_owned()],
    };
    assert_eq!(config.settings.boost, boost);
    assert_eq!(config.extra_helpers, ["Xvnc"]);
    let premap = &config.settings.premap;
    assert!(!premap.enabled && premap.window_pages == 32);
    let readahead = &config.settings.readahead;
    assert!(!readahead.enabled && !readahead.cold_start);
    assert_eq!((readahead.factor, readahead.rate), (16, 10 << 20));
    assert_eq!(readahead.record, ms(5000));
    assert_eq!((readahead.record_bytes, readahead.records), (20 << 20, 7));
    assert_eq!(config.cold_start_directory, PathBuf::from("/srv/records"));
    let prezero = PrezeroSettings {
        enabled: false,
        engine: EngineChoice::Block,
        most_percent: 3,
        block: Some(Extent {
            device: PathBuf::from("/dev/vdz"),
            offset: 7 << 20,
            len: 2 << 20,
            trusted: true,
        }),
    };
    assert_eq!(config.settings.prezero, prezero);
    let swap = SwapSettings {
        enabled: false,
        kill_percent: 4,
        swap_percent: 12,
        write_budget: 9 << 20,
        by_cost: false,
        write_back: false,
        ask: false,
        throttle: true,
        services: false,
        freeze: false,
        kill: false,
        grace: Duration::from_millis(500),
        prefault: 3 << 20,
    };
    assert_eq!(config.settings.swap, swap);
    let window = WindowSettings {
        enabled: false,
        deadline: ms(300),
        deadline_max: ms(2000),
        apps: 3,
    };
    assert_eq!(config.settings.window, window);
    assert_eq!(config.access_group, AccessGroup::Name("wheel".to_owned()));
    assert_eq!(config.device, UseDevice::Require);
    let mut lists = Lists::default();
    lists.of_mut(Class::Keep).push("a".to_owned());
    lists.of_mut(Class::Normal).push("b".to_owned());
    lists
        .of_mut(Class::Disposable)
        .extend(["c", "d*"].map(str::to_owned));
    assert_eq!(config.class_lists, lists);
    let mut never = NeverLists::default();
    never.of_mut(Never::Boost).push("e".to_owned());
    never.of_mut(Never::Protect).push("f".to_owned());
    never
        .of_mut(Never::Close)
        .extend(["g", "h*"].map(str::to_owned));
    assert_eq!(config.never_lists, never);
    let keys = text.lines().filter(|line| line.contains('=')).count();
    assert_eq!(keys, KEYS.len(), "a key is missing in this test");
}

#[test]
fn group_is_a_name_a_number_or_none() {
    let group = |value: &str| {
        let mut config = Config::default();
        let text = format!("[access]\ngroup = {value}\n");
        let errors = apply(&mut config, &text, |_| None, &mut |_, _, _, _| {});
        errors.is_empty().then_some(config.access_group)
    };
    assert_eq!(group("\"\""), Some(AccessGroup::Off));
    for number in ["990", "\"990\"", "\"0990\""] {
        assert_eq!(group(number), Some(AccessGroup::Id(990)), "{number}");
    }
    for wrong in [
        "-1",
        "4294967295",
        "\"4294967295\"",
        "0x10",
        "true",
        "\"a:b\"",
        "[\"a\"]",
    ] {
        assert_eq!(group(wrong), None, "{wrong}");
    }
}

#[test]
fn drop_ins_are_read_in_order_and_the_last_value_counts() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("limelight.toml");
    assert_eq!(loaded(&file).unwrap(), Config::default());
    let drop_ins = temp.path().join("limelight.toml.d");
    std::fs::create_dir(&drop_ins).unwrap();
    std::fs::write(
        &file,
        "[protect]\nbudget_percent = 10\ninterval_ms = 1000\n",
    )
    .unwrap();
    std::fs::write(drop_ins.join("20.toml"), "[protect]\nbudget_percent = 30\n").unwrap();
    std::fs::write(drop_ins.join("10.toml"), "[protect]\nbudget_percent = 20\n").unwrap();
    std::fs::write(
        drop_ins.join("30.toml.off"),
        "[protect]\nbudget_percent = 99\n",
    )
    .unwrap();
    let config = loaded(&file).unwrap();
    assert_eq!(config.settings.protect.budget_percent, 30);
    assert_eq!(config.settings.protect.interval, ms(1000));
    let alone = load(&Origin::File(file)).unwrap();
    assert_eq!(alone.settings.protect.budget_percent, 10);
}

#[test]
fn errors_of_all_files_are_listed() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("limelight.toml");
    let drop_ins = temp.path().join("limelight.toml.d");
    std::fs::create_dir(&drop_ins).unwrap();
    std::fs::write(&file, "a = 1\n").unwrap();
    std::fs::write(drop_ins.join("x.toml"), "\n\n[b]\n").unwrap();
    let text = loaded(&file).unwrap_err().to_string();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(
        lines[0].contains("limelight.toml:1: `a` is outside a section"),
        "{text}"
    );
    assert!(lines[1].contains("x.toml:3: unknown section [b]"), "{text}");
    let missing = load(&Origin::File(temp.path().join("none.toml"))).unwrap_err();
    assert!(
        missing.to_string().contains("none.toml: cannot read"),
        "{missing}"
    );
}

#[test]
fn contradicting_keys_are_both_named_with_their_places() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("limelight.toml");
    let drop_ins = temp.path().join("limelight.toml.d");
    std::fs::create_dir(&drop_ins).unwrap();
    let more = drop_ins.join("x.toml");
    let errors = |first: &str, second: &str| {
        std::fs::write(&file, first).unwrap();
        std::fs::write(&more, second).unwrap();
        loaded(&file).err().map(|errors| errors.to_string())
    };
    let (at, then) = (file.display(), more.display());
    assert_eq!(
        errors(
            "[swap]\nkill_percent = 30\n",
            "\n[swap]\nswap_percent = 20\n"
        ),
        Some(format!(
            "{then}:3: `kill_percent` in [swap] is 30 ({at}:2), above `swap_percent`, which is 20 \
             ({then}:3)"
        ))
    );
    assert_eq!(
        errors("[expert]\nwindow_deadline_ms = 6000\n", ""),
        Some(format!(
            "{at}:2: `window_deadline_ms` in [expert] is 6000 ({at}:2), above \
             `window_deadline_max_ms`, which is 5000 (the default)"
        ))
    );
    // A later file may settle it, and equal values fit. The old names of keys count as well.
    let later = "[window]\ndeadline_max_ms = 6000\n";
    assert_eq!(errors("[expert]\nwindow_deadline_ms = 6000\n", later), None);
    let wide = "[swap]\nkill_percent = 30\nswap_percent = 30\n";
    assert_eq!(errors(wide, ""), None);
}

#[test]
fn kill_percent_is_below_the_swap_threshold_of_the_machine() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("limelight.toml");
    let errors = |text: &str, machine: &Thresholds| {
        std::fs::write(&file, text).unwrap();
        let loaded = load_files(std::slice::from_ref(&file), machine);
        loaded.err().map(|errors| errors.to_string())
    };
    let at = file.display();
    assert_eq!(
        errors("[swap]\nkill_percent = 30\n", &MACHINE),
        Some(format!(
            "{at}:2: `kill_percent` in [swap] is 30, 2457 MiB of this machine's memory, so apps \
             would be closed before any is swapped: `swap_percent` is \"auto\", 819 MiB here. Set \
             `swap_percent` to more than 30, or `kill_percent` to less than 10"
        ))
    );
    assert_eq!(errors("[swap]\nkill_percent = 9\n", &MACHINE), None);
    // The default is a whole percentage here, and equal values leave nothing between them.
    let equal = Thresholds {
        total: 1000 << 20,
        kill: 25 << 20,
        swap: 100 << 20,
    };
    assert!(errors("[swap]\nkill_percent = 10\n", &equal).is_some());
    assert_eq!(errors("[swap]\nkill_percent = 9\n", &equal), None);
    // On a machine with much memory, one percent is too much.
    let large = Thresholds {
        total: 512 << 30,
        kill: 256 << 20,
        swap: 1536 << 20,
    };
    let text = errors("[swap]\nkill_percent = 1\n", &large).unwrap();
    assert!(
        text.ends_with("to more than 1, or `kill_percent` to \"auto\""),
        "{text}"
    );
    let both = "[swap]\nkill_percent = 1\nswap_percent = 2\n";
    assert_eq!(errors(both, &large), None);
    let auto = "[swap]\nkill_percent = \"auto\"\n";
    assert_eq!(errors(auto, &large), None);
}

#[test]
fn swap_percent_is_above_the_kill_threshold_of_the_machine() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("limelight.toml");
    let errors = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let loaded = load_files(std::slice::from_ref(&file), &MACHINE);
        loaded.err().map(|errors| errors.to_string())
    };
    assert_eq!(
        errors("[swap]\nswap_percent = 2\n"),
        Some(format!(
            "{}:2: `swap_percent` in [swap] is 2, 163 MiB of this machine's memory, so apps would \
             be closed before any is swapped: `kill_percent` is \"auto\", 204 MiB here. Set \
             `swap_percent` to at least 3",
            file.display()
        ))
    );
    assert_eq!(errors("[swap]\nswap_percent = 3\n"), None);
    assert_eq!(errors("[swap]\nswap_percent = 2\nkill_percent = 1\n"), None);
}

#[test]
fn keys_win_over_the_profile_of_the_last_file() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("limelight.toml");
    let drop_ins = temp.path().join("limelight.toml.d");
    std::fs::create_dir(&drop_ins).unwrap();
    let more = drop_ins.join("x.toml");
    std::fs::write(&file, "profile = \"kiosk\"\n[swap]\nkill = true\n").unwrap();
    std::fs::write(&more, "# x\nprofile = \"server\"\n").unwrap();
    let loaded = load_files(&with_drop_ins(&file).unwrap(), &MACHINE).unwrap();
    let settings = &loaded.config.settings;
    assert_eq!(settings.protect.budget_percent, 20);
    assert_eq!(settings.topmost.gap, ms(2000));
    assert!(settings.swap.kill && !settings.swap.freeze);
    let of = |key| loaded.given.iter().rev().find(|given| given.key == key);
    let freeze = of("freeze").unwrap();
    assert_eq!((&freeze.file, freeze.line), (&more, 2));
    assert_eq!(freeze.profile, Some("server"));
    assert_eq!(of("kill").unwrap().profile, None);
    // A key contradicts the profile only if its value does.
    std::fs::write(&more, "[window]\ndeadline_max_ms = 100\n").unwrap();
    let errors = load_files(&with_drop_ins(&file).unwrap(), &MACHINE).err();
    assert!(errors.unwrap().to_string().contains("(the default), above"));
}

#[test]
fn profile_is_a_known_name_above_the_first_section() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("limelight.toml");
    for (text, expected) in [
        (
            "profile = \"phnoe\"\n",
            ":1: `profile` is \"phnoe\" (did you mean \"phone\"?); allowed: \"desktop\", \"phone\", \
             \"kiosk\", \"server\"",
        ),
        ("\nprofile = 1\n", ":2: `profile` is a value of type integer; allowed: "),
        (
            "[swap]\nprofile = \"phone\"\n",
            ":2: `profile` in [swap]: write it above the first section",
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let errors = load(&Origin::File(file.clone())).unwrap_err().to_string();
        assert!(errors.contains(expected), "{errors}");
    }
}

/// The guide's table of profiles and the profiles themselves.
#[test]
fn guide_lists_all_values_of_all_profiles() {
    let guide = include_str!("../../../../docs/user/guide.md");
    let rows = guide.lines().filter(|line| line.starts_with("| `["));
    let mut listed = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        if let [_, key, phone, kiosk, server, _, _] = cells[..] {
            for (profile, value) in [("phone", phone), ("kiosk", kiosk), ("server", server)] {
                if !value.is_empty() {
                    listed.push((profile, key.trim_matches('`').to_owned(), value.to_owned()));
                }
            }
        }
    }
    let mut known = Vec::new();
    for profile in &profiles::PROFILES {
        let mut config = Config::default();
        let errors = apply(
            &mut config,
            profile.text,
            |_| None,
            &mut |key: &Key, value, _, _| {
                let name = format!("[{}] {}", key.section, key.name);
                known.push((profile.name, name, value.to_owned()));
            },
        );
        assert_eq!(errors, [], "{}", profile.name);
        // Every value differs from the default.
        let changes = known.iter().filter(|(name, ..)| *name == profile.name);
        assert_eq!(config == Config::default(), changes.count() == 0);
    }
    listed.sort();
    known.sort();
    assert_eq!(listed, known);
}

#[test]
fn packaged_file_has_the_defaults_and_names_every_key() {
    let text = include_str!("../../../../packaging/limelight.toml");
    let mut config = Config::default();
    assert_eq!(apply(&mut config, text, |_| None, &mut |_, _, _, _| {}), []);
    assert_eq!(config, Config::default());
    // Each key that has a default is in the file, commented out and set to that default.
    let uncomment = |examples: bool| -> String {
        let lines = text.lines().map(|line| match shown_key(line) {
            Some((key, _)) if examples || !has_only_example(key) => line.trim_start_matches('#'),
            _ => line,
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    let uncommented = uncomment(false);
    let mut config = Config::default();
    assert_eq!(
        apply(&mut config, &uncommented, |_| None, &mut |_, _, _, _| {}),
        []
    );
    assert_eq!(config, Config::default());
    // A key without a default has an example instead.
    let uncommented = uncomment(true);
    assert_eq!(
        apply(&mut config, &uncommented, |_| None, &mut |_, _, _, _| {}),
        []
    );
    for key in KEYS {
        assert!(
            uncommented.contains(&format!("\n{} = ", key.name)),
            "{} is missing",
            key.name
        );
    }
}

#[test]
fn each_value_is_shown_with_its_file_and_line() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("limelight.toml");
    let text = "[protect]\n\nbudget_percent = 40\n[boost]\nhelpers = [\"Xorg\",\n \"sway\"]\n";
    std::fs::write(&file, text).unwrap();
    let all = values(&Origin::File(file.clone())).unwrap();
    assert_eq!(all.len(), KEYS.len());
    let of = |key| all.iter().find(|value| value.key == key).unwrap();
    let budget = of("budget_percent");
    assert_eq!(budget.value.as_deref(), Some("40"));
    assert_eq!(budget.origin, Some((file.clone(), 3)));
    assert_eq!(of("helpers").origin, Some((file, 5)));
    assert_eq!(
        (of("gap_ms").value.as_deref(), &of("gap_ms").origin),
        (Some("2000"), &None)
    );
    let unset: Vec<_> = all.iter().filter(|value| value.value.is_none()).collect();
    assert!(
        unset.iter().all(|value| has_only_example(value.key)),
        "{unset:?}"
    );
}

#[test]
fn classes_come_from_lists_and_the_table_beside_the_configuration() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("limelight.toml");
    let write = |name: &str, text: &str| std::fs::write(temp.path().join(name), text).unwrap();
    let of = |id: &str, category: &str| {
        let config = load(&Origin::File(file.clone())).unwrap();
        config.classes.of(&Identity {
            desktop_id: Some(id.to_owned()),
            categories: vec![category.to_owned()],
            ..Identity::default()
        })
    };
    let lists =
        "[class]\nnormal = [\"org.x.*\"]\nkeep = [\"org.x.Bank\"]\ndisposable = [\n \"y\"\n]\n";
    write("limelight.toml", lists);
    // `keep` outranks the other classes, whatever the order in the file.
    let bank = of("org.x.Bank", "News");
    assert_eq!(bank.class, Class::Keep);
    assert!(bank.why.contains("limelight.toml:3"), "{}", bank.why);
    assert_eq!(of("org.x.Notes", "News").class, Class::Normal);
    assert_eq!(of("y", "Office").class, Class::Disposable);
    assert_eq!(of("z", "Office").class, Class::Keep);
    write("classes.toml", "[categories]\nOffice = \"disposable\"\n");
    assert_eq!(of("z", "Office").class, Class::Disposable);
    assert_eq!(of("z", "News").class, Class::Normal);

    let wrong = || load(&Origin::File(file.clone())).unwrap_err().to_string();
    write("classes.toml", "[categories]\n\nOffice = \"never\"\n");
    assert!(
        wrong().contains("classes.toml:3: `Office` is not a class"),
        "{}",
        wrong()
    );
    write("classes.toml", "[categories]\n");
    write(
        "limelight.toml",
        "[class]\nkeep = [\"a\", \"b\"]\n\ndisposable = [\"b\", \"b\"]\n",
    );
    let text = wrong();
    assert!(
        text.contains("limelight.toml:4: \"b\" is in `disposable` and in `keep`"),
        "{text}"
    );
    assert!(text.contains("limelight.toml:2)"), "{text}");
}

#[test]
fn old_names_work_with_a_warning() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("limelight.toml");
    let load = |text: &str| {
        std::fs::write(&file, text).unwrap();
        load_with_warnings(&Origin::File(file.clone()))
    };
    let at = file.display();
    let old = "[protect]\nadopt = \"never\"\ninterval_ms = 250\n[swap]\nkill_percent = 0\n\
               [kernel]\ndevice = \"require\"\n[readahead]\nfactor = 4\n\
               [topmost]\ngap_ms = 300\n";
    let (config, warnings) = load(old).unwrap();
    assert_eq!(
        (config.adopt, config.device),
        (Adopt::Never, UseDevice::Require)
    );
    assert_eq!(config.settings.protect.interval, ms(250));
    assert_eq!(config.settings.readahead.factor, 4);
    assert_eq!(config.settings.topmost.gap, ms(300));
    let mut warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    warnings.sort();
    let mut expected = [
        format!("{at}:2: `adopt` in [protect]: \"never\" is now called \"off\""),
        format!("{at}:3: `interval_ms` in [protect] is now `protect_interval_ms` in [expert]"),
        format!("{at}:5: `kill_percent` in [swap]: 0 is now called \"auto\""),
        format!("{at}:7: `device` in [kernel]: \"require\" is now called \"on\""),
        format!("{at}:9: `factor` in [readahead] is now `readahead_factor` in [expert]"),
        format!("{at}:11: section [topmost] is now [foreground]"),
    ];
    expected.sort();
    assert_eq!(warnings, expected);
    // The new names give no warning.
    let new = "[protect]\nadopt = \"off\"\n[swap]\nkill_percent = \"auto\"\n[expert]\n\
               protect_interval_ms = 250\nreadahead_factor = 4\n[kernel]\ndevice = \"on\"\n\
               [foreground]\ngap_ms = 300\n";
    let (same, warnings) = load(new).unwrap();
    assert_eq!((same, warnings), (config, Vec::new()));
    // Both names in one file are an error.
    let twice = "[protect]\ninterval_ms = 250\n[expert]\nprotect_interval_ms = 300\n";
    let errors = load(twice).unwrap_err().to_string();
    let expected = format!("{at}:2: it is also set as `protect_interval_ms` in [expert]");
    assert_eq!(errors, expected);
    let twice = "[topmost]\ngap_ms = 300\n[foreground]\ngap_ms = 300\n";
    let errors = load(twice).unwrap_err().to_string();
    let expected = format!("{at}:2: it is also set as `gap_ms` in [foreground]");
    assert_eq!(errors, expected);
    // Mistakes in a section with an old name name the present one.
    let errors = load("[topmost]\ngap = 300\n").unwrap_err().to_string();
    let expected = "unknown key `gap` in [foreground] (did you mean `gap_ms`?)";
    assert!(errors.contains(expected), "{errors}");
    let errors = load("topmost = 300\n").unwrap_err().to_string();
    assert!(errors.contains("write [foreground]"), "{errors}");
    // A section without keys sets nothing.
    assert_eq!(
        load("[topmost]\n").unwrap(),
        (Config::default(), Vec::new())
    );
}

#[test]
fn extra_helpers_are_added_to_the_helpers() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("limelight.toml");
    let text = "[boost]\nhelpers = [\"Xorg\"]\nextra_helpers = [\"Xvnc\", \"Xorg\"]\n";
    std::fs::write(&file, text).unwrap();
    let config = load(&Origin::File(file)).unwrap();
    assert_eq!(config.settings.boost.helpers, ["Xorg", "Xvnc"]);
}

#[test]
fn exceptions_name_their_file_and_line() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("limelight.toml");
    std::fs::write(&file, "[never]\n\nclose = [\"org.x.*\"]\nboost = [\"*\"]\n").unwrap();
    let config = load(&Origin::File(file.clone())).unwrap();
    let identity = Identity {
        desktop_id: Some("org.x.Bank".to_owned()),
        ..Identity::default()
    };
    let found = config.never.of(&identity, false);
    let why = |never| found.of(never).map(|one: &Exception| one.why.clone());
    let at = file.display();
    assert_eq!(
        why(Never::Close),
        Some(format!(
            "its app id org.x.Bank matches \"org.x.*\" ({at}:3)"
        ))
    );
    assert_eq!(
        why(Never::Boost),
        Some(format!("its app id org.x.Bank matches \"*\" ({at}:4)"))
    );
    assert_eq!(why(Never::Protect), None);
}

proptest! {
    #[test]
    fn never_panics(text in "(\\[[a-z]{0,8}\\]\n)?[a-z_]{0,8} ?=? ?[-0-9a-z\"._\\[{]{0,10}\n?.*") {
        apply(&mut Config::default(), &text, |_| None, &mut |_, _, _, _| {});
    }
}

#[test]
fn block_engine_and_block_keys_require_block_device() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("limelight.toml");
    for text in [
        "[expert]\nprezero_engine = \"block\"\n",
        "[prezero]\nblock_mib = 2\n",
    ] {
        std::fs::write(&file, text).unwrap();
        let errors = load(&Origin::File(file.clone())).unwrap_err().to_string();
        assert!(errors.contains("limelight.toml: "), "{errors}");
        assert!(errors.contains("`prezero_block_device`"), "{errors}");
    }
    let text = "[prezero]\nengine = \"block\"\nblock_device = \"/dev/vdz\"\n";
    std::fs::write(&file, text).unwrap();
    let extent = load(&Origin::File(file)).unwrap().settings.prezero.block;
    assert_eq!(extent.unwrap().len, 4 << 20);
}
