//! Writes what is generated from the API types: the CRD, its copy in the chart, the reference, and the tables of a guide.

use std::{error::Error, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let crd = phpprof_crds::crd_yaml()?;
    let guide = "docs/guides/troubleshooting.md";
    let files = [
        ("crds/profilerequest.yaml", crd.clone()),
        ("charts/phpprof/files/profilerequest.yaml", crd),
        (
            "docs/reference/profilerequest.md",
            phpprof_crds::reference::markdown()?,
        ),
        (
            "docs/reference/reasons.md",
            phpprof_crds::reasons_page::markdown(),
        ),
        (
            guide,
            phpprof_crds::reasons_page::guide(&fs::read_to_string(root.join(guide))?)?,
        ),
    ];
    for (path, content) in files {
        let path = root.join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, content)?;
    }
    Ok(())
}
