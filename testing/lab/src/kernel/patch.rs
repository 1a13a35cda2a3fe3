// SPDX-License-Identifier: GPL-2.0-or-later
//! Applies our series to a kernel tree.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{bail, Context, Result};

use crate::{paths, shell};

/// Maximum number of lines of a rejected hunk in an error.
const REJECT_LINES: usize = 40;

/// Copies every file below `files` to the same path below `tree`. Fails if a file exists there:
/// existing files are changed by patches only.
pub fn lay_over(files: &Path, tree: &Path) -> Result<()> {
    for file in paths::files_below(files)? {
        let to = tree.join(&file);
        if to.exists() {
            bail!(
                "{} would replace the kernel's own file: make it a patch",
                files.join(&file).display()
            );
        }
        let dir = to.parent().expect("a file below the tree has a directory");
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        fs::copy(files.join(&file), &to)
            .with_context(|| format!("cannot copy {}", files.join(&file).display()))?;
    }
    Ok(())
}

/// The patches in `dir`, in order.
pub fn series(dir: &Path) -> Result<Vec<PathBuf>> {
    let files = paths::files_below(dir)?;
    Ok(files
        .iter()
        .filter(|f| f.extension().is_some_and(|e| e == "patch"))
        .map(|f| dir.join(f))
        .collect())
}

/// Applies `patch` to `tree` without fuzz: a hunk with different context is rejected, and the error
/// names the patch and shows the hunk.
pub fn apply(patch: &Path, tree: &Path) -> Result<()> {
    let rejected = tree.join(".limelight-rejected");
    let mut command = Command::new("patch");
    command
        .args([
            "-p1",
            "--fuzz=0",
            "--batch",
            "--forward",
            "--no-backup-if-mismatch",
        ])
        .arg(format!("--reject-file={}", rejected.display()))
        .arg("-d")
        .arg(tree)
        .arg("-i")
        .arg(patch)
        .stdin(Stdio::null());
    let shown = shell::show(&command);
    let output = command
        .output()
        .map_err(|e| shell::not_started(e, &command, &shown))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    // Omit the names of files that were patched without a message. Keep a file's name if messages
    // about the file follow.
    let lines: Vec<&str> = said.lines().collect();
    let is_heading = |line: &str| line.starts_with("patching file");
    let complaints: Vec<&str> = lines
        .iter()
        .enumerate()
        .filter(|(at, line)| {
            !is_heading(line) || lines.get(at + 1).is_some_and(|next| !is_heading(next))
        })
        .map(|(_, line)| *line)
        .collect();
    let hunk = paths::read_lossy(&rejected).unwrap_or_default();
    let hunk = hunk
        .lines()
        .take(REJECT_LINES)
        .collect::<Vec<_>>()
        .join("\n");
    bail!(
        "patch {} does not apply to this kernel source:\n{}\n{}{hunk}",
        patch.file_name().unwrap_or_default().to_string_lossy(),
        complaints.join("\n"),
        if hunk.is_empty() { "" } else { "rejected:\n" },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "A hook.\n\n--- a/mm/vmscan.c\n+++ b/mm/vmscan.c\n@@ -1,3 +1,4 @@\n one\n+hook\n two\n three\n";

    fn tree_with(contents: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("tree/mm")).unwrap();
        fs::write(dir.path().join("tree/mm/vmscan.c"), contents).unwrap();
        let patch = dir.path().join("0002-protect.patch");
        fs::write(&patch, PATCH).unwrap();
        (dir, patch)
    }

    fn failure(dir: &tempfile::TempDir, patch: &Path) -> String {
        let error = apply(patch, &dir.path().join("tree")).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("0002-protect.patch does not apply"),
            "{error}"
        );
        error
    }

    #[test]
    fn matching_patch_is_applied() {
        let (dir, patch) = tree_with("one\ntwo\nthree\n");
        let tree = dir.path().join("tree");
        apply(&patch, &tree).unwrap();
        assert_eq!(
            fs::read_to_string(tree.join("mm/vmscan.c")).unwrap(),
            "one\nhook\ntwo\nthree\n"
        );
    }

    #[test]
    fn failing_patch_is_named_with_the_rejected_hunk() {
        let (dir, patch) = tree_with("one\nTWO\nthree\n");
        let error = failure(&dir, &patch);
        assert!(
            error.contains("mm/vmscan.c") && error.contains("FAILED"),
            "{error}"
        );
        assert!(error.contains("+hook"), "{error}");
    }

    #[test]
    fn patch_of_a_missing_file_is_named() {
        let (dir, patch) = tree_with("");
        fs::remove_file(dir.path().join("tree/mm/vmscan.c")).unwrap();
        let error = failure(&dir, &patch);
        assert!(error.contains("can't find file"), "{error}");
    }

    #[test]
    fn files_are_added_but_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (files, tree) = (dir.path().join("files"), dir.path().join("tree"));
        fs::create_dir_all(files.join("mm/limelight")).unwrap();
        fs::create_dir_all(&tree).unwrap();
        fs::write(files.join("mm/limelight/core.c"), "ours").unwrap();
        lay_over(&files, &tree).unwrap();
        assert_eq!(
            fs::read_to_string(tree.join("mm/limelight/core.c")).unwrap(),
            "ours"
        );
        let error = lay_over(&files, &tree).unwrap_err().to_string();
        assert!(error.contains("mm/limelight/core.c"), "{error}");
    }

    #[test]
    fn series_is_sorted() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["0010-z.patch", "0002-a.patch", "README"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let names: Vec<_> = series(dir.path()).unwrap();
        assert_eq!(
            names,
            ["0002-a.patch", "0010-z.patch"].map(|n| dir.path().join(n))
        );
    }
}
