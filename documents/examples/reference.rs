//! Prints `docs/reference/phpprof.md`. Its argument is the program. `make generate`.

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let program = std::env::args().nth(1).ok_or("the program is missing")?;
    print!("{}", phpprof_documents::reference(Path::new(&program))?);
    Ok(())
}
