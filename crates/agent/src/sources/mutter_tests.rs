// SPDX-License-Identifier: GPL-2.0-or-later
//! Tests with marks in a temporary directory, like those that mutter sets on cgroups.

use super::*;

struct Tree {
    temp: tempfile::TempDir,
    marks: Marks,
}

impl Tree {
    /// `None` if the temporary directory does not support attributes.
    fn new() -> Option<Tree> {
        // Next to the build directory: tmpfs on older kernels does not support attributes.
        let build = std::env::current_exe().unwrap();
        let temp = tempfile::tempdir_in(build.parent().unwrap()).unwrap();
        let root = temp.path().join("user@7.service");
        std::fs::create_dir_all(root.join("app.slice/app-a-1.scope")).unwrap();
        let probe = set(&root, "1");
        if let Err(errno) = probe {
            eprintln!(
                "SKIPPED: {} does not support attributes: {errno}",
                root.display()
            );
            return None;
        }
        let marks = Marks::watch(temp.path(), &root).unwrap();
        Some(Tree { temp, marks })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join("user@7.service/app.slice").join(name)
    }

    fn mark(&self, name: &str, value: &str) {
        set(&self.path(name), value).unwrap();
    }

    fn focused(&mut self) -> Option<String> {
        self.marks.take().unwrap();
        self.marks.seen().cgroup
    }
}

fn set(path: &Path, value: &str) -> rustix::io::Result<()> {
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(path, ATTRIBUTE, value.as_bytes(), flags)
}

#[test]
fn mark_moves_with_the_focus() {
    let Some(mut tree) = Tree::new() else { return };
    let cgroup = |name: &str| Some(format!("/user@7.service/app.slice/{name}"));
    assert_eq!(tree.focused(), None);
    tree.mark("app-a-1.scope", "-1");
    assert_eq!(tree.focused(), cgroup("app-a-1.scope"));
    // A slice created later, and an app in it.
    let nested = "app-term.slice/app-term-2.scope";
    std::fs::create_dir_all(tree.path(nested)).unwrap();
    assert_eq!(tree.focused(), cgroup("app-a-1.scope"));
    tree.mark("app-a-1.scope", "81234567");
    tree.mark(nested, "-1");
    assert_eq!(tree.focused(), cgroup(nested));
    std::fs::remove_dir(tree.path(nested)).unwrap();
    assert_eq!(tree.focused(), None);
    std::fs::remove_dir(tree.path("app-term.slice")).unwrap();
    assert_eq!(tree.focused(), None);
    // Existing marks are read at once.
    tree.mark("app-a-1.scope", "-1");
    let root = tree.temp.path().join("user@7.service");
    let again = Marks::watch(tree.temp.path(), &root).unwrap();
    assert_eq!(again.seen().cgroup, cgroup("app-a-1.scope"));
}

#[test]
fn root_is_derived_from_the_agents_cgroup() {
    let mount = Path::new("/sys/fs/cgroup");
    let usual = "/sys/fs/cgroup/user.slice/user-7.slice/user@7.service";
    assert_eq!(root_of(mount, None, 7), Path::new(usual));
    let elsewhere = "/machine/user@7.service/session.slice/limelight-agent.service";
    assert_eq!(
        root_of(mount, Some(elsewhere), 7),
        Path::new("/sys/fs/cgroup/machine/user@7.service")
    );
    let session = "/user.slice/user-7.slice/session-2.scope";
    assert_eq!(root_of(mount, Some(session), 7), Path::new(usual));
}
