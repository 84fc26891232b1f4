//! `cargo xtask ebpf`: builds the eBPF object that is committed beside its source.
//!
//! A plain stable `cargo build` embeds the committed object and needs no BPF toolchain. The record beside it
//! tells from which sources and by which tools it was made, so that a stale object is found out.

mod build;
mod names;
mod record;
mod sources;
mod stacks;
pub mod wrapper;

use std::{
    fs,
    path::{Path, PathBuf},
};

pub use build::Toolchain;
use record::Record;

use crate::{
    error::{Error, Result},
    workspace,
};

/// What `cargo xtask ebpf` can do.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only check that the committed object was made from the current sources
    #[arg(long, conflicts_with = "verify")]
    check: bool,
    /// Rebuild elsewhere and compare with the committed object, byte by byte, if the tools are the recorded ones
    #[arg(long)]
    verify: bool,
    /// `debian`: Debian's packages (see `cargo xtask setup`); `nightly`: a rustup nightly with rust-src
    #[arg(long, value_enum, default_value = "debian")]
    toolchain: Toolchain,
}

/// What a rebuild from source showed.
#[derive(Debug)]
pub struct Rebuilt {
    /// The rebuilt object.
    pub path: PathBuf,
    /// What was compared, in words.
    pub comparison: String,
}

/// Runs the subcommand.
pub fn main(arguments: &Arguments) -> Result<()> {
    let root = workspace::root();
    if arguments.check {
        check(root)?;
        println!("the committed eBPF object was made from the current sources");
        return Ok(());
    }
    if arguments.verify {
        let rebuilt = verify(root, arguments.toolchain)?;
        println!("{}: {}", rebuilt.path.display(), rebuilt.comparison);
        return Ok(());
    }
    let (bytes, tools) = build::object(root, arguments.toolchain)?;
    let shared = stacks::shared(&bytes)?;
    if !shared.is_empty() {
        return Err(Error::told(format!(
            "functions of uprobe programs use 64 bytes of stack or more, which Linux 6.13 and later would share between \
             threads: {shared:?}"
        )));
    }
    let record = Record::new(sources::sha256(root)?, &bytes, tools);
    let path = object_path(root);
    let directory = path.parent().unwrap_or(root);
    fs::create_dir_all(directory).map_err(Error::file("create", directory))?;
    fs::write(&path, &bytes).map_err(Error::file("write", &path))?;
    record.write(&record_path(root))?;
    println!("wrote {} ({} bytes) and its record", path.display(), bytes.len());
    Ok(())
}

/// Fails unless the committed object is the recorded one and was made from the current sources.
pub fn check(root: &Path) -> Result<()> {
    let record = Record::read(&record_path(root))?;
    let path = object_path(root);
    let bytes = fs::read(&path).map_err(Error::file("read", &path))?;
    record.check(&sources::sha256(root)?, &bytes)
}

/// Rebuilds the object in the target directory and compares it with the committed one, byte by byte, where
/// the tools are those that made it.
pub fn verify(root: &Path, toolchain: Toolchain) -> Result<Rebuilt> {
    let (bytes, tools) = build::object(root, toolchain)?;
    let path = workspace::target().join("ebpf/profiler.bpf.o");
    fs::write(&path, &bytes).map_err(Error::file("write", &path))?;
    let record = Record::read(&record_path(root))?;
    if let Some(difference) = record.tools.difference(&tools) {
        return Ok(Rebuilt {
            path,
            comparison: format!("not compared with the committed object: {difference}"),
        });
    }
    let committed_path = object_path(root);
    let committed = fs::read(&committed_path).map_err(Error::file("read", &committed_path))?;
    if committed != bytes {
        return Err(Error::told(format!(
            "{} rebuilt from source by the recorded tools differs from the committed one (see {}); run \
             `cargo xtask ebpf` and commit the object with its record",
            committed_path.display(),
            path.display()
        )));
    }
    Ok(Rebuilt {
        path,
        comparison: "byte for byte the committed object".to_owned(),
    })
}

fn object_path(root: &Path) -> PathBuf {
    root.join("profiler-ebpf/object/profiler.bpf.o")
}

fn record_path(root: &Path) -> PathBuf {
    root.join("profiler-ebpf/object/record.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_object_is_current() {
        check(workspace::root()).unwrap();
    }

    #[test]
    fn no_stack_of_the_committed_object_is_shared_between_threads() {
        let bytes = fs::read(object_path(workspace::root())).unwrap();
        assert_eq!(stacks::shared(&bytes).unwrap(), []);
    }

    #[test]
    fn the_committed_object_holds_no_absolute_path() {
        let bytes = fs::read(object_path(workspace::root())).unwrap();
        assert_eq!(
            names::absolute_paths(&bytes, &[workspace::root(), &workspace::cargo_home()]),
            Vec::<String>::new()
        );
    }
}
