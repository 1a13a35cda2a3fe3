// SPDX-License-Identifier: GPL-2.0-or-later
//! The documentation, against the tree and the program: links, paths, messages and keys. The tests
//! of `args.rs` check the command lines.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use limelight_daemon::config::shown_key;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// All files below `place` whose name has one of these extensions, without build output.
fn files(place: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut places = vec![root().join(place)];
    while let Some(directory) = places.pop() {
        for entry in fs::read_dir(&directory).unwrap().flatten() {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let extension = path.extension().unwrap_or_default().to_string_lossy();
            if kind.is_dir()
                && !["target", ".git", "corpus"]
                    .iter()
                    .any(|name| path.ends_with(name))
            {
                places.push(path);
            } else if kind.is_file() && extensions.contains(&&*extension) {
                found.push(path);
            }
        }
    }
    found
}

/// All pages: their paths and texts.
fn pages() -> Vec<(PathBuf, String)> {
    let pages = files(".", &["md"]).into_iter();
    pages
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect()
}

/// The lines of a page outside code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// The anchors of a page's headings, as forges derive them.
fn anchors(text: &str) -> BTreeSet<String> {
    let heading = |line: &str| {
        line.starts_with('#')
            .then(|| line.trim_start_matches('#').trim().to_lowercase())
    };
    let kept = |text: String| {
        text.chars()
            .filter(|one| one.is_alphanumeric() || " -_".contains(*one))
            .collect::<String>()
    };
    prose(text)
        .filter_map(heading)
        .map(|text| kept(text).replace(' ', "-"))
        .collect()
}

/// The texts between `open` and `close` in `text`.
fn between<'a>(text: &'a str, open: &str, close: &str) -> Vec<&'a str> {
    let parts = text.split(open).skip(1);
    parts
        .filter_map(|part| Some(part.split_once(close)?.0))
        .collect()
}

#[test]
fn relative_links_resolve() {
    let mut broken = Vec::new();
    for (page, text) in pages() {
        let lines: Vec<&str> = prose(&text).collect();
        let lines = lines.join("\n");
        let mut targets = between(&lines, "](", ")");
        for picture in [" src=\"", " srcset=\""] {
            targets.extend(between(&lines, picture, "\""));
        }
        for target in targets {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            if path.contains(':') {
                continue;
            }
            let file = match path.is_empty() {
                true => page.clone(),
                false => page.parent().unwrap().join(path),
            };
            let there = file.exists();
            let read = || fs::read_to_string(&file).unwrap_or_default();
            if !there || !anchor.is_empty() && !anchors(&read()).contains(anchor) {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn index_lists_every_page() {
    let index = fs::read_to_string(root().join("docs/README.md")).unwrap();
    for page in files("docs", &["md"]) {
        let page = page
            .strip_prefix(root().join("docs"))
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let listed = index.contains(&format!("]({page})"));
        assert!(
            listed || page == "README.md" || page.starts_with("results/"),
            "{page}"
        );
    }
}

#[test]
fn paths_of_pages_in_code_and_messages_exist() {
    let extensions = [
        "rs", "py", "c", "h", "sh", "md", "toml", "yml", "patch", "txt", "svg", "service",
    ];
    let mut all = files(".", &extensions);
    all.extend(["Makefile", "kernel/series/parts"].map(|name| root().join(name)));
    let mut broken = Vec::new();
    for file in all {
        let text = fs::read_to_string(&file).unwrap_or_default();
        for part in text.split("docs/").skip(1) {
            let end = part.find(|one: char| !(one.is_ascii_lowercase() || "/-.".contains(one)));
            let path = part[..end.unwrap_or(part.len())].trim_end_matches('.');
            let page = [".md", ".svg", ".dot"]
                .iter()
                .any(|kind| path.ends_with(kind));
            // Links may start in a page's own directory; `relative_links_resolve` checks them.
            let there = root().join("docs").join(path).exists();
            if page && !there {
                broken.push(format!("{}: docs/{path}", file.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Program sources, with each string literal on one line.
fn sources() -> String {
    let mut all = String::new();
    for place in [
        "crates/cli/src",
        "crates/daemon/src",
        "crates/core/src",
        "crates/sys/src",
    ] {
        for file in files(place, &["rs"]) {
            let text = fs::read_to_string(file).unwrap();
            let mut pieces = text.split("\\\n");
            all.push_str(pieces.next().unwrap_or_default());
            pieces.for_each(|piece| all.push_str(piece.trim_start()));
        }
    }
    all
}

#[test]
fn troubleshooting_quotes_real_messages() {
    let sources = sources();
    let page = fs::read_to_string(root().join("docs/user/troubleshooting.md")).unwrap();
    let mut checked = 0;
    for line in page.lines().filter(|line| line.starts_with('|')) {
        let cell = line.split('|').nth(1).unwrap();
        for message in cell.split('`').skip(1).step_by(2) {
            for piece in message
                .split("...")
                .map(str::trim)
                .filter(|piece| piece.len() > 1)
            {
                assert!(sources.contains(piece), "no program prints {piece:?}");
                checked += 1;
            }
        }
    }
    assert!(checked > 40, "{checked}");
}

#[test]
fn configuration_keys_exist() {
    let shown = fs::read_to_string(root().join("packaging/limelight.toml")).unwrap();
    let mut section = "";
    let mut keys = BTreeSet::new();
    for line in shown.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if let Some((name, _)) = shown_key(line) {
            keys.insert(format!("[{section}] {name}"));
        }
    }
    let word = |text: &str| {
        text.split(|one: char| !(one.is_ascii_lowercase() || one == '_'))
            .next()
            .unwrap()
            .to_owned()
    };
    for (page, text) in pages() {
        for part in text.split("`[").skip(1) {
            let Some((section, key)) = part.split_once("] ") else {
                continue;
            };
            let key = word(key);
            if section.chars().all(|one| one.is_ascii_lowercase()) && !key.is_empty() {
                let key = format!("[{section}] {key}");
                assert!(keys.contains(&key), "{}: {key}", page.display());
            }
        }
    }
}

#[test]
fn recipes_name_the_same_home_page_and_repository() {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
    let manifest = read("Cargo.toml");
    let value = |key: &str| {
        let start = format!("{key} = \"");
        let line = manifest.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap().trim_end_matches('"').to_owned()
    };
    let (page, repository) = (value("homepage"), value("repository"));
    for (file, line) in [
        ("packaging/debian/control", format!("Homepage: {page}\n")),
        (
            "packaging/debian/control",
            format!("Vcs-Git: {repository}\n"),
        ),
        ("packaging/arch/PKGBUILD.in", format!("url='{page}'\n")),
        ("packaging/alpine/APKBUILD.in", format!("url=\"{page}\"\n")),
        ("packaging/rpm/limelight.spec.in", format!(" {page}\n")),
        (
            "packaging/limelight.metainfo.xml",
            format!("\"homepage\">{page}<"),
        ),
        ("crates/proto/README.md", format!("]({page})")),
        ("docs/integrator/packaging.md", format!("`{repository}`")),
    ] {
        assert!(read(file).contains(&line), "{file}: {line}");
    }
    let version = value("version");
    let metainfo = read("packaging/limelight.metainfo.xml");
    assert!(
        metainfo.contains(&format!("<release version=\"{version}\"")),
        "{version}"
    );
}
