// SPDX-License-Identifier: GPL-2.0-or-later
//! README's commands for installing, against docs/user/install.md.

use std::path::Path;

/// The code blocks of a page.
fn blocks(page: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let blocks = text.split("```\n").skip(1).step_by(2);
    blocks.map(str::to_owned).collect()
}

#[test]
fn readme_installs_with_the_commands_of_the_page() {
    let page = blocks("docs/user/install.md");
    let readme = blocks("README.md");
    let installs = readme
        .iter()
        .filter(|block| block.contains("make deb") || block.contains("make dist"));
    assert!(installs.count() >= 4, "{readme:#?}");
    for block in readme {
        assert!(page.contains(&block), "not in install.md:\n{block}");
    }
}
