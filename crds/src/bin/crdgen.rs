//! Writes what is generated from the API types: the CRDs, their copies in the chart, and the
//! reference.

use std::{error::Error, fs, path::Path};

use phpprof_crds::{ProfileArchive, ProfileRequest, reference};

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let request = phpprof_crds::crd_yaml::<ProfileRequest>()?;
    let archive = phpprof_crds::crd_yaml::<ProfileArchive>()?;
    let files = [
        ("crds/profilerequest.yaml", request.clone()),
        ("charts/phpprof/files/profilerequest.yaml", request),
        ("crds/profilearchive.yaml", archive.clone()),
        ("charts/phpprof/files/profilearchive.yaml", archive),
        ("docs/reference/profilerequest.md", reference::request()?),
        ("docs/reference/profilearchive.md", reference::archive()?),
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
