//! Writes what is generated from the API types: the CRDs, their copies in the chart, and the
//! reference.

use std::{error::Error, fs, path::Path};

use phpprof_crds::{ProfileArchive, ProfileComparison, ProfileRequest, ProfileTrigger, reference};

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let request = phpprof_crds::crd_yaml::<ProfileRequest>()?;
    let archive = phpprof_crds::crd_yaml::<ProfileArchive>()?;
    let comparison = phpprof_crds::crd_yaml::<ProfileComparison>()?;
    let trigger = phpprof_crds::crd_yaml::<ProfileTrigger>()?;
    let files = [
        ("crds/profilerequest.yaml", request.clone()),
        ("charts/phpprof/files/profilerequest.yaml", request),
        ("crds/profilearchive.yaml", archive.clone()),
        ("charts/phpprof/files/profilearchive.yaml", archive),
        ("crds/profilecomparison.yaml", comparison.clone()),
        ("charts/phpprof/files/profilecomparison.yaml", comparison),
        ("docs/reference/profilerequest.md", reference::request()?),
        ("docs/reference/profilearchive.md", reference::archive()?),
        (
            "docs/reference/profilecomparison.md",
            reference::comparison()?,
        ),
        ("crds/profiletrigger.yaml", trigger.clone()),
        ("charts/phpprof/files/profiletrigger.yaml", trigger),
        ("docs/reference/profiletrigger.md", reference::trigger()?),
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
