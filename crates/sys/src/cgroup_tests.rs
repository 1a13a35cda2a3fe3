// SPDX-License-Identifier: GPL-2.0-or-later
//! Tests of the cgroup interface on fake trees.

use super::*;
use proptest::prelude::*;
use std::fs;

/// A hierarchy with `/user.slice`, `/user.slice/app.scope` and `/bare.scope`. The first two have
/// the files of the memory controller.
fn fake() -> (tempfile::TempDir, Hierarchy) {
    let temp = tempfile::tempdir().unwrap();
    for group in ["", "user.slice", "user.slice/app.scope", "bare.scope"] {
        let dir = temp.path().join(group);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("cgroup.procs"), "12\n7\n0\n").unwrap();
        fs::write(dir.join("cgroup.controllers"), "cpu memory\n").unwrap();
        fs::write(dir.join("cgroup.subtree_control"), "memory\n").unwrap();
        fs::write(dir.join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        if group.starts_with("user") {
            fs::write(dir.join("memory.min"), "0\n").unwrap();
            fs::write(dir.join("memory.max"), "max\n").unwrap();
            fs::write(dir.join("memory.current"), "8192\n").unwrap();
            fs::write(dir.join("memory.stat"), "anon 4096\nfile 4096\n").unwrap();
        }
    }
    fs::write(
        temp.path().join("user.slice/app.scope/cgroup.procs"),
        "40\n",
    )
    .unwrap();
    let hierarchy = Hierarchy::at(temp.path()).unwrap();
    (temp, hierarchy)
}

fn path(text: &str) -> CgroupPath {
    CgroupPath::parse(text).unwrap()
}

#[test]
fn limits_round_trip_through_files() {
    let (_temp, hierarchy) = fake();
    let app = hierarchy.open(&path("/user.slice/app.scope")).unwrap();
    assert_eq!(app.limit(MemoryKnob::Min).unwrap(), Limit::ZERO);
    assert_eq!(app.limit(MemoryKnob::Max).unwrap(), Limit::Max);
    app.set_limit(MemoryKnob::Min, Limit::Bytes(1 << 30))
        .unwrap();
    assert_eq!(app.limit(MemoryKnob::Min).unwrap(), Limit::Bytes(1 << 30));
    assert_eq!(app.memory_current().unwrap(), 8192);
    assert_eq!(app.memory_stat().unwrap().get("anon"), Some(4096));
}

#[test]
fn missing_controller_and_missing_group_are_different_errors() {
    let (temp, hierarchy) = fake();
    let bare = hierarchy.open(&path("/bare.scope")).unwrap();
    assert!(bare.limit(MemoryKnob::Min).unwrap_err().is_unsupported());
    assert!(bare
        .set_limit(MemoryKnob::Low, Limit::Max)
        .unwrap_err()
        .is_unsupported());
    assert!(hierarchy.open(&path("/none")).unwrap_err().is_gone());
    fs::remove_dir_all(temp.path().join("bare.scope")).unwrap();
    assert!(bare.limit(MemoryKnob::Min).unwrap_err().is_gone());
    assert!(!bare.exists());
}

#[test]
fn recreated_group_has_another_id() {
    let (temp, hierarchy) = fake();
    let old = hierarchy.open(&path("/bare.scope")).unwrap();
    fs::rename(temp.path().join("bare.scope"), temp.path().join("gone")).unwrap();
    fs::create_dir(temp.path().join("bare.scope")).unwrap();
    assert_ne!(old.id(), hierarchy.open(&path("/bare.scope")).unwrap().id());
}

#[test]
fn malformed_limit_names_its_file() {
    let (temp, hierarchy) = fake();
    fs::write(temp.path().join("user.slice/memory.min"), "lots\n").unwrap();
    let slice = hierarchy.open(&path("user.slice")).unwrap();
    let error = slice.limit(MemoryKnob::Min).unwrap_err();
    assert!(matches!(error, Error::Malformed { .. }));
    assert!(
        error.to_string().contains("user.slice/memory.min"),
        "{error}"
    );
}

#[test]
fn processes_and_children_are_listed() {
    let (_temp, hierarchy) = fake();
    let slice = hierarchy.open(&path("/user.slice")).unwrap();
    assert_eq!(slice.procs().unwrap(), [7, 12]);
    assert_eq!(slice.procs_below().unwrap(), [7, 12, 40]);
    assert!(slice.is_populated().unwrap());
    assert_eq!(slice.controllers().unwrap(), ["cpu", "memory"]);
    let children: Vec<Cgroup> = slice.children().unwrap().map(Result::unwrap).collect();
    assert_eq!(children.len(), 1);
    assert_eq!(children[0].path(), &path("/user.slice/app.scope"));
    let made = slice.create_child("limelight").unwrap();
    assert_eq!(made.path().as_str(), "/user.slice/limelight");
    assert!(matches!(
        slice.create_child("limelight"),
        Err(Error::Busy { .. })
    ));
    slice.remove_child("limelight").unwrap();
    let root = hierarchy.open(&CgroupPath::root()).unwrap();
    assert_eq!(root.children().unwrap().count(), 2);
}

#[test]
fn only_a_limited_number_of_groups_is_read() {
    let (_temp, hierarchy) = fake();
    let slice = hierarchy.open(&path("/user.slice")).unwrap();
    assert_eq!(slice.procs_below_within(1).unwrap(), [7, 12, 40]);
    let error = slice.procs_below_within(0).unwrap_err();
    assert!(!error.is_gone() && !error.is_unsupported(), "{error}");
    slice.create_child("more").unwrap();
    assert!(slice.procs_below_within(1).is_err());
}

#[test]
fn chain_starts_below_the_root_and_ends_at_the_group() {
    let names = |text: &str| -> Vec<String> {
        path(text)
            .chain()
            .iter()
            .map(|path| path.to_string())
            .collect()
    };
    assert_eq!(names("/a/b/c"), ["/a", "/a/b", "/a/b/c"]);
    assert_eq!(names("/a"), ["/a"]);
    assert_eq!(names("/"), [""; 0]);
    let (_temp, hierarchy) = fake();
    let chain = hierarchy
        .open_chain(&path("/user.slice/app.scope"))
        .unwrap();
    assert_eq!(chain.len(), 2);
    assert_eq!(chain[1].path().name(), "app.scope");
}

#[test]
fn paths_outside_the_hierarchy_are_refused() {
    assert_eq!(CgroupPath::parse("/../x"), None);
    assert_eq!(CgroupPath::parse("a/./b"), None);
    assert_eq!(path("a//b/"), path("/a/b"));
    assert_eq!(path(""), CgroupPath::root());
    assert_eq!(path("/a/b").parent(), Some(path("/a")));
    assert_eq!(path("/a").parent(), Some(CgroupPath::root()));
    assert_eq!(CgroupPath::root().parent(), None);
    assert!(path("/a").contains(&path("/a/b")));
    assert!(!path("/a").contains(&path("/ab")));
}

#[test]
fn typed_path_may_start_with_the_mount_point() {
    let (temp, hierarchy) = fake();
    let absolute = temp.path().join("user.slice");
    assert_eq!(
        hierarchy.path_of(absolute.to_str().unwrap()),
        Some(path("/user.slice"))
    );
    assert_eq!(hierarchy.path_of("user.slice"), Some(path("/user.slice")));
    assert_eq!(hierarchy.path_of("/user.slice"), Some(path("/user.slice")));
}

#[test]
fn without_cgroup_v2_the_search_is_unsupported() {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir(temp.path().join("1")).unwrap();
    fs::write(
        temp.path().join("1/mountinfo"),
        "1 0 0:1 / /proc rw - proc proc rw\n",
    )
    .unwrap();
    let proc = Proc::open(temp.path().to_str().unwrap()).unwrap();
    assert!(Hierarchy::find(&proc).unwrap_err().is_unsupported());
}

proptest! {
    #[test]
    fn parsers_never_panic(text in any::<String>()) {
        let _ = text.parse::<Limit>();
        if let Some(path) = CgroupPath::parse(&text) {
            prop_assert!(path.as_str().starts_with('/'));
            prop_assert_eq!(path.chain().last().is_none(), path.is_root());
            prop_assert_eq!(CgroupPath::parse(path.as_str()), Some(path.clone()));
            for ancestor in path.chain() {
                prop_assert!(ancestor.contains(&path));
            }
        }
    }

    #[test]
    fn printed_limits_parse_to_the_same_value(bytes in any::<u64>()) {
        let limit = Limit::Bytes(bytes);
        prop_assert_eq!(limit.to_string().parse::<Limit>(), Ok(limit));
    }
}

#[test]
fn first_group_without_a_controller_is_found() {
    let (_temp, hierarchy) = fake();
    let first = |path: &str, file: &str| {
        let path = CgroupPath::parse(path).unwrap();
        let found = hierarchy.first_without(&path, file);
        found.map(|path| path.as_str().to_owned())
    };
    assert_eq!(first("/user.slice/app.scope", "memory.min"), None);
    let without = Some("/user.slice".to_owned());
    assert_eq!(first("/user.slice/app.scope", "cpu.weight"), without);
    assert_eq!(first("/gone", "memory.min"), Some("/gone".to_owned()));
    assert_eq!(first("/", "memory.min"), None);
}

#[test]
fn weights_are_read_with_and_without_the_default_prefix() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::write(temp.path().join("cgroup.procs"), "").unwrap();
    let group = Hierarchy::at(temp.path())
        .and_then(|hierarchy| hierarchy.open(&CgroupPath::root()))
        .unwrap();
    for (file, text) in [
        ("cpu.weight", "100\n"),
        ("io.weight", "default 250\n8:0 30\n"),
        ("io.bfq.weight", "much\n"),
    ] {
        std::fs::write(temp.path().join(file), text).unwrap();
    }
    assert_eq!(group.weight(WeightKnob::Cpu).unwrap(), 100);
    assert_eq!(group.weight(WeightKnob::Io).unwrap(), 250);
    assert!(matches!(
        group.weight(WeightKnob::Bfq),
        Err(Error::Malformed { .. })
    ));
    group.set_weight(WeightKnob::Cpu, 9000).unwrap();
    assert_eq!(group.weight(WeightKnob::Cpu).unwrap(), 9000);
    std::fs::remove_file(temp.path().join("cpu.weight")).unwrap();
    assert!(group.weight(WeightKnob::Cpu).unwrap_err().is_unsupported());
}

/// A group in the running kernel. It is removed when the test ends.
pub(super) struct RealGroup {
    parent: Cgroup,
    name: String,
    group: Option<Cgroup>,
}

impl RealGroup {
    /// Creates the group; `None` without root privileges or without cgroup v2.
    pub(super) fn new(test: &str) -> Option<RealGroup> {
        let proc = Proc::open("/proc").unwrap();
        let parent = Hierarchy::find(&proc)
            .and_then(|hierarchy| hierarchy.open(&CgroupPath::root()))
            .ok()?;
        let name = format!("limelight-test-{test}-{}", std::process::id());
        let group = parent.create_child(&name).ok()?;
        Some(RealGroup {
            parent,
            name,
            group: Some(group),
        })
    }

    pub(super) fn group(&self) -> &Cgroup {
        self.group.as_ref().unwrap()
    }
}

impl Drop for RealGroup {
    fn drop(&mut self) {
        let group = self.group.take();
        let _ = group.map(|group| group.kill());
        for _ in 0..500 {
            match self.parent.remove_child(&self.name) {
                Err(Error::Busy { .. }) => std::thread::sleep(std::time::Duration::from_millis(10)),
                _ => return,
            }
        }
    }
}

/// The kernel does not list the processes of a threaded group, only those of the group above it.
#[test]
fn processes_of_a_group_with_a_threaded_child_are_listed() {
    let Some(real) = RealGroup::new("threaded") else {
        return;
    };
    let mut sleep = std::process::Command::new("sleep");
    let mut process = sleep.arg("600").spawn().unwrap();
    let pid = process.id() as i32;
    let group = real.group();
    group.attach(pid).unwrap();
    let child = group.create_child("threads").unwrap();
    child.write("cgroup.type", "threaded").unwrap();
    child.write("cgroup.threads", &pid.to_string()).unwrap();
    let listed = (group.kind(), child.procs(), group.procs_below());
    process.kill().unwrap();
    process.wait().unwrap();
    let _ = group.remove_child("threads");
    let (kind, of_child, below) = listed;
    assert_eq!(kind.unwrap(), "domain threaded");
    assert!(of_child.unwrap_err().is_unsupported());
    assert_eq!(below.unwrap(), [pid]);
}

#[test]
fn attribute_is_text_or_none() {
    let (temp, hierarchy) = fake();
    let group = hierarchy.open(&path("/user.slice/app.scope")).unwrap();
    assert_eq!(group.attribute("user.limelight.class"), None);
    let directory = temp.path().join("user.slice/app.scope");
    let flags = rustix::fs::XattrFlags::empty();
    // Not every file system supports extended attributes.
    if rustix::fs::setxattr(&directory, "user.limelight.class", b"disposable", flags).is_ok() {
        let value = group.attribute("user.limelight.class");
        assert_eq!(value.as_deref(), Some("disposable"));
    }
}
