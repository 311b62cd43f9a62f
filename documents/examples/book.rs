//! `book stage FOLDER`: writes the documents to FOLDER as mdBook reads them, with the files that
//! they link to. `book check FOLDER`: checks that each link in the site that mdBook has built there
//! leads to a file of it, and to a heading.
//!
//! It does not ask other hosts. `make docs`.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use phpprof_documents::{book, is_elsewhere, links, pages, place, root};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn write(file: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    fs::create_dir_all(file.parent().ok_or("no folder")?)?;
    Ok(fs::write(file, content)?)
}

fn stage(folder: &Path) -> Result<()> {
    let (pages, src) = (pages()?, folder.join("src"));
    write(
        &folder.join("book.toml"),
        fs::read(root().join("docs/book.toml"))?,
    )?;
    write(&src.join("SUMMARY.md"), book::summary(&pages))?;
    for (path, text) in &pages {
        write(&src.join(book::file(path)), book::page(text))?;
        for link in links(text) {
            let (file, _) = place(path, &link);
            if !pages.contains_key(&file) {
                let content = fs::read(root().join(&file));
                let content =
                    content.map_err(|error| format!("{}: {link}: {error}", path.display()))?;
                write(&src.join(&file), content)?;
            }
        }
    }
    Ok(())
}

/// The site's pages, by their paths from its folder.
fn site(folder: &Path, below: &Path, found: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    for entry in fs::read_dir(folder.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            site(folder, &path, found)?;
        } else if path.extension().is_some_and(|end| end == "html") {
            found.insert(path, fs::read_to_string(entry.path())?);
        }
    }
    Ok(())
}

fn check(folder: &Path) -> Result<()> {
    let mut pages = BTreeMap::new();
    site(folder, Path::new(""), &mut pages)?;
    let (mut count, mut broken) = (0, Vec::new());
    for (path, html) in &pages {
        let (links, _) = book::links_and_ids(html);
        for link in links.into_iter().filter(|link| !is_elsewhere(link)) {
            let (file, anchor) = place(path, link);
            let has_anchor = match (&anchor, pages.get(&file)) {
                (Some(anchor), Some(html)) if !anchor.is_empty() => {
                    book::links_and_ids(html).1.contains(anchor.as_str())
                }
                _ => true,
            };
            if !folder.join(&file).is_file() || !has_anchor {
                broken.push(format!("{}: {link}", path.display()));
            }
            count += 1;
        }
    }
    println!("    {} pages, {count} links", pages.len());
    if broken.is_empty() && pages.len() > 40 {
        Ok(())
    } else {
        Err(format!("links that lead nowhere:\n{}", broken.join("\n")).into())
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["stage", folder] => stage(Path::new(folder)),
        ["check", folder] => check(Path::new(folder)),
        _ => Err("usage: book stage|check FOLDER".into()),
    }
}
