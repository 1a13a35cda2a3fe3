// SPDX-License-Identifier: GPL-2.0-or-later

use super::keys::ms;
use super::*;
use limelight_core::model::class::{Class, Identity};
use limelight_core::settings::{BoostSettings, PrezeroSettings, SwapSettings, WindowSettings};
use proptest::prelude::*;

fn loaded(file: &Path) -> Result<Config, ConfigErrors> {
    Ok(load_files(&with_drop_ins(file)?)?.config)
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
                "unknown key `budget` in [protect]; known keys: `enabled`, `budget_percent`, \
                 `interval_ms`, `oom_score_adj_points`, `lock_shared`, `ageing`, `adopt`, \
                 `own_scopes`",
            )],
        ),
        (
            "[topmost]\ngap_ms = \"2s\"\n[protekt]\nenabled = true\n",
            &[
                (2, "`gap_ms` in [topmost] is \"2s\"; allowed: a whole number from 0 to 60000"),
                (3, "unknown section [protekt]; known sections: [topmost], [sources], [protect], \
                     [boost], [premap], [readahead], [prezero], [swap], [window], [class], \
                     [access], [kernel]"),
            ],
        ),
        (
            "[kernel]\ndevice = \"yes\"\n[sources]\noom_score_adj = true\n",
            &[
                (2, "`device` in [kernel] is \"yes\"; allowed: \"auto\", \"require\", \"off\""),
                (
                    4,
                    "`oom_score_adj` in [sources] is true; allowed: \"auto\", \"tracepoint\", \"scan\", \"off\"",
                ),
            ],
        ),
        (
            "[protect]\nenabled = 1\ninterval_ms = [5]\nadopt = 1.5\n",
            &[
                (2, "`enabled` in [protect] is 1; allowed: true or false"),
                (
                    3,
                    "`interval_ms` in [protect] is a value of type array; allowed: a whole number from 100 to 10000",
                ),
                (4, "`adopt` in [protect] is 1.5; allowed: \"auto\", \"never\", \"always\""),
            ],
        ),
        (
            "[readahead]\nfactor = 0\ndirectory = \"records\"\n",
            &[
                (2, "`factor` in [readahead] is 0; allowed: a whole number from 1 to 64"),
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
                    "unknown key `cpu_wieght` in [boost]; known keys: `enabled`, `cpu_weight`, \
                     `nice_points`, `slice_us`, `io_weight`, `io_level`, `starting`, `terminal`, `helpers`",
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
    ];
    for (text, errors) in golden {
        let found = apply(&mut Config::default(), text, &mut |_, _, _| {});
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
        &mut |_, _, _| {},
    );
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].0, 3, "{errors:?}");
    assert!(errors[0].1.starts_with("not TOML: "), "{errors:?}");
    let twice = apply(
        &mut Config::default(),
        "[protect]\nenabled = true\nenabled = false\n",
        &mut |_, _, _| {},
    );
    assert_eq!(twice[0].0, 3, "{twice:?}");
}

#[test]
fn every_key_reaches_the_configuration() {
    let text = "
        [topmost]
        gap_ms = 3_000
        [sources]
        oom_score_adj = \"scan\"
        scan_interval_ms = 0x100
        top_app = false
        evdev = \"on\"
        wake_graph = false
        [protect]
        enabled = false
        budget_percent = 40
        interval_ms = 250
        oom_score_adj_points = 0
        lock_shared = false
        ageing = true
        adopt = \"always\"
        own_scopes = false
        [boost]
        enabled = false
        cpu_weight = 900
        nice_points = 5
        slice_us = 50
        io_weight = 800
        io_level = 3
        starting = false
        terminal = false
        helpers = [\"Xorg\"]
        [premap]
        enabled = false
        window_pages = 32
        [readahead]
        enabled = false
        factor = 16
        rate_mib = 10
        cold_start = false
        record_s = 5
        record_mib = 20
        records = 7
        directory = \"/srv/records\"
        [prezero]
        enabled = false
        engine = \"block\"
        most_percent = 3
        block_device = \"/dev/vdz\"
        block_offset_mib = 7
        block_mib = 2
        block_trusted = true
        [swap]
        enabled = false
        kill_percent = 4
        swap_percent = 12
        write_budget_mib = 9
        by_cost = true
        ask = false
        throttle = true
        services = false
        freeze = false
        kill = false
        grace_ms = 500
        prefault_mib = 3
        [window]
        enabled = false
        deadline_ms = 300
        deadline_max_ms = 2000
        apps = 3
        [class]
        keep = [\"a\"]
        normal = [\"b\"]
        disposable = [\"c\", \"d*\"]
        [access]
        group = \"wheel\"
        [kernel]
        device = \"require\"
    ";
    let mut config = Config::default();
    assert_eq!(apply(&mut config, text, &mut |_, _, _| {}), []);
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
        by_cost: true,
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
    let keys = text.lines().filter(|line| line.contains('=')).count();
    assert_eq!(keys, KEYS.len(), "a key is missing in this test");
}

#[test]
fn group_is_a_name_a_number_or_none() {
    let group = |value: &str| {
        let mut config = Config::default();
        let text = format!("[access]\ngroup = {value}\n");
        let errors = apply(&mut config, &text, &mut |_, _, _| {});
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
        lines[0].contains("limelight.toml:1: unknown section [a]"),
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
fn packaged_file_has_the_defaults_and_names_every_key() {
    let text = include_str!("../../../../packaging/limelight.toml");
    let mut config = Config::default();
    assert_eq!(apply(&mut config, text, &mut |_, _, _| {}), []);
    assert_eq!(config, Config::default());
    // Each key that has a default is in the file, commented out and set to that default.
    let uncommented: String = text
        .lines()
        .map(|line| line.strip_prefix("#: ").unwrap_or(line))
        .collect::<Vec<_>>()
        .join("\n");
    let mut config = Config::default();
    assert_eq!(apply(&mut config, &uncommented, &mut |_, _, _| {}), []);
    assert_eq!(config, Config::default());
    // A key without a default has an example instead.
    let uncommented = uncommented.replace("\n#! ", "\n");
    assert_eq!(apply(&mut config, &uncommented, &mut |_, _, _| {}), []);
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
        unset.iter().all(|value| value.key.starts_with("block_")),
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

proptest! {
    #[test]
    fn never_panics(text in "(\\[[a-z]{0,8}\\]\n)?[a-z_]{0,8} ?=? ?[-0-9a-z\"._\\[{]{0,10}\n?.*") {
        apply(&mut Config::default(), &text, &mut |_, _, _| {});
    }
}

#[test]
fn block_engine_and_block_keys_require_block_device() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("limelight.toml");
    for text in [
        "[prezero]\nengine = \"block\"\n",
        "[prezero]\nblock_mib = 2\n",
    ] {
        std::fs::write(&file, text).unwrap();
        let errors = load(&Origin::File(file.clone())).unwrap_err().to_string();
        assert!(errors.contains("limelight.toml: "), "{errors}");
        assert!(errors.contains("`block_device`"), "{errors}");
    }
    let text = "[prezero]\nengine = \"block\"\nblock_device = \"/dev/vdz\"\n";
    std::fs::write(&file, text).unwrap();
    let extent = load(&Origin::File(file)).unwrap().settings.prezero.block;
    assert_eq!(extent.unwrap().len, 4 << 20);
}
