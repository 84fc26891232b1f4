//! Links of the repository's Markdown pages: each leads to a file that is there, and to a heading of it; and the book
//! lists each of its pages.
//!
//! Addresses of the web are left alone: whether a server answers says nothing of this repository.

use std::{
    collections::HashSet,
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
};

/// Folders that hold nothing of the repository's own.
const SKIPPED: [&str; 2] = ["target", ".git"];

/// What is wrong with the links of the Markdown files below a folder, a line each: the file, the link, and why.
fn broken(root: &Path) -> io::Result<Vec<String>> {
    let root = root.canonicalize()?;
    let mut problems = Vec::new();
    for page in pages(&root)? {
        for link in links(&fs::read_to_string(&page)?) {
            if let Some(problem) = problem(&root, &page, &link)? {
                let name = page.strip_prefix(&root).unwrap_or(&page).display();
                problems.push(format!("{name}: link to `{link}`: {problem}"));
            }
        }
    }
    Ok(problems)
}

/// The pages of a book's folder that its `SUMMARY.md` does not link to.
fn unlisted(book: &Path) -> io::Result<Vec<String>> {
    let book = book.canonicalize()?;
    let summary = book.join("SUMMARY.md");
    let listed: HashSet<PathBuf> = links(&fs::read_to_string(&summary)?)
        .iter()
        .filter_map(|link| book.join(link).canonicalize().ok())
        .collect();
    let missing = pages(&book)?
        .into_iter()
        .filter(|page| *page != summary && !listed.contains(page));
    Ok(missing
        .map(|page| page.strip_prefix(&book).unwrap_or(&page).display().to_string())
        .collect())
}

/// The Markdown files below a folder, sorted.
fn pages(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if !SKIPPED.iter().any(|name| path.ends_with(name)) {
                found.extend(pages(&path)?);
            }
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Why a link of a page leads nowhere, if it does.
fn problem(root: &Path, page: &Path, link: &str) -> io::Result<Option<String>> {
    if link.contains("://") || link.starts_with("mailto:") {
        return Ok(None);
    }
    let (path, anchor) = link
        .split_once('#')
        .map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let target = if path.is_empty() {
        page.to_owned()
    } else {
        let Ok(target) = page.with_file_name("").join(path).canonicalize() else {
            return Ok(Some("there is no such file".to_owned()));
        };
        target
    };
    if !target.starts_with(root) {
        return Ok(Some("it leads out of the repository".to_owned()));
    }
    let Some(anchor) = anchor else { return Ok(None) };
    if target.extension().is_none_or(|ending| ending != "md") {
        return Ok(Some("only Markdown files have headings".to_owned()));
    }
    let anchors = anchors(&fs::read_to_string(&target)?);
    Ok((!anchors.contains(anchor)).then(|| format!("no heading of that file has the anchor `{anchor}`")))
}

/// The targets of a page's links and pictures, outside of code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for paragraph in paragraphs(text) {
        let paragraph = without_code_spans(&paragraph);
        for (before, after) in [("](", ')'), ("src=\"", '"'), ("href=\"", '"')] {
            for part in paragraph.split(before).skip(1) {
                if let Some((target, _)) = part.split_once(after) {
                    found.push(target.trim().to_owned());
                }
            }
        }
    }
    found
}

/// The anchors of a page's headings, by GitHub's rule: lower case, nothing but letters, digits, `-` and `_`, a `-` for each
/// space, and a number behind those that are there already.
fn anchors(text: &str) -> HashSet<String> {
    let mut anchors = HashSet::new();
    for heading in paragraphs(text).iter().filter_map(|line| heading(line)) {
        let slug = slug(heading);
        let mut anchor = slug.clone();
        let mut number = 0;
        while !anchors.insert(anchor.clone()) {
            number += 1;
            anchor = format!("{slug}-{number}");
        }
    }
    anchors
}

fn slug(heading: &str) -> String {
    // Of a link in a heading the words count, not where it leads.
    let mut words = String::new();
    let mut rest = heading;
    while let Some((before, behind)) = rest.split_once("](") {
        words.push_str(before);
        rest = behind.split_once(')').map_or("", |(_, behind)| behind);
    }
    words.push_str(rest);
    words
        .trim()
        .chars()
        .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'))
        .flat_map(char::to_lowercase)
        .map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

/// The words of a line that is a heading.
fn heading(line: &str) -> Option<&str> {
    let words = line.trim_start_matches('#');
    let depth = line.len() - words.len();
    ((1..=6).contains(&depth) && words.starts_with(' ')).then(|| words.trim())
}

/// What a page has outside of blocks of code: its headings, each by itself, and its paragraphs.
fn paragraphs(text: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    let mut fence = None;
    // Where a line that begins with four spaces is code: behind an empty line, a heading, or such a line.
    let mut code_may_begin = true;
    for line in text.lines() {
        let mark = ["```", "~~~"]
            .into_iter()
            .find(|mark| line.trim_start().starts_with(mark));
        if fence.is_some() || mark.is_some() {
            fence = match fence {
                None => mark,
                open if open == mark => None,
                open => open,
            };
            continue;
        }
        if line.trim().is_empty() {
            paragraphs.push(String::new());
            code_may_begin = true;
        } else if code_may_begin && line.starts_with("    ") {
            // Still in the block.
        } else if heading(line).is_some() {
            paragraphs.extend([line.to_owned(), String::new()]);
            code_may_begin = true;
        } else {
            if let Some(paragraph) = paragraphs.last_mut() {
                paragraph.push_str(line);
                paragraph.push('\n');
            }
            code_may_begin = false;
        }
    }
    paragraphs
}

/// A paragraph without what is between backticks: as many close as have opened.
fn without_code_spans(text: &str) -> String {
    let mut rest = text;
    let mut kept = String::new();
    while let Some(opening) = backticks(rest) {
        kept.push_str(&rest[..opening.start]);
        let behind = &rest[opening.end..];
        rest = closing(behind, opening.len()).map_or(behind, |end| &behind[end..]);
    }
    kept.push_str(rest);
    kept
}

/// Where the first backticks of a text are.
fn backticks(text: &str) -> Option<Range<usize>> {
    let start = text.find('`')?;
    let behind = &text[start..];
    let len = behind.len() - behind.trim_start_matches('`').len();
    Some(start..start + len)
}

/// Where a code span ends, behind the backticks that close it.
fn closing(text: &str, len: usize) -> Option<usize> {
    let mut from = 0;
    while let Some(run) = backticks(&text[from..]) {
        from += run.end;
        if run.len() == len {
            return Some(from);
        }
    }
    None
}

mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn every_link_of_the_repository_leads_somewhere() {
        let broken = broken(workspace::root()).unwrap();
        assert!(
            broken.is_empty(),
            "links that lead nowhere:\n{}",
            broken.join("\n")
        );
    }

    #[test]
    fn the_book_lists_each_of_its_pages() {
        let unlisted = unlisted(&workspace::root().join("docs")).unwrap();
        assert!(
            unlisted.is_empty(),
            "docs/SUMMARY.md does not link to:\n{}",
            unlisted.join("\n")
        );
    }

    #[test]
    fn links_that_lead_nowhere_are_told_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("picture.svg", "<svg/>");
        write("target/made.md", "[left alone](nowhere.md)");
        write("docs/SUMMARY.md", "# Summary\n\n- [One](one.md)\n");
        write(
            "docs/one.md",
            "# One\n[here](#one) [two](deep/two.md#a-heading) ![picture](../picture.svg) <https://example.org/>\n\
             [gone](gone.md) [none](deep/two.md#none) <img src=\"gone.svg\"> [picture](../picture.svg#part)\n\
             [out](../../) [web](https://example.org/#nothing)\n",
        );
        write("docs/deep/two.md", "## A heading\n[back](../one.md)\n");
        assert_eq!(
            broken(folder.path()).unwrap(),
            [
                "docs/one.md: link to `gone.md`: there is no such file",
                "docs/one.md: link to `deep/two.md#none`: no heading of that file has the anchor `none`",
                "docs/one.md: link to `../picture.svg#part`: only Markdown files have headings",
                "docs/one.md: link to `../../`: it leads out of the repository",
                "docs/one.md: link to `gone.svg`: there is no such file",
            ]
        );
        assert_eq!(unlisted(&folder.path().join("docs")).unwrap(), ["deep/two.md"]);
    }

    #[test]
    fn anchors_are_those_that_github_makes() {
        let text = "# From \"it is slow\" to `f[>= p95]`\n## Twice\n## Twice\n### pprof, `.pb.gz`\n# A [link](b.md)\n\
                    # snake_case – and ÄÖ\n#no heading\n\n    # code\n\n```\n# fenced\n```\n";
        let mut found: Vec<String> = anchors(text).into_iter().collect();
        found.sort();
        assert_eq!(
            found,
            [
                "a-link",
                "from-it-is-slow-to-f-p95",
                "pprof-pbgz",
                "snake_case--and-äö",
                "twice",
                "twice-1",
            ]
        );
    }

    #[test]
    fn code_has_no_links() {
        let text = "# Title\n    [a](a.md)\n\nText `[b](b.md)` and ``[`c`](c.md)`` and [`d`](d.md),\n    [e](e.md)\n\n\
                    ```\n[f](f.md)\n\n~~~\n```\n- [g](g.md) `h\n";
        assert_eq!(links(text), ["d.md", "e.md", "g.md"]);
    }
}
