//! Compiling and linking the eBPF crate.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{names, record::Tools, wrapper};
use crate::{
    error::{Error, Result},
    sh, workspace,
};

const TARGET: &str = "bpfel-unknown-none";

/// Which compiler builds the eBPF crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Toolchain {
    /// Debian's rustc-web with its precompiled `core` for BPF.
    Debian,
    /// A rustup nightly, which compiles `core` from the rust-src component.
    Nightly,
}

/// Builds the object: linked, without DWARF (BTF is what the kernel reads), without absolute paths.
pub fn object(root: &Path, toolchain: Toolchain) -> Result<(Vec<u8>, Tools)> {
    let linker = sh::find("bpf-linker").ok_or_else(|| missing("bpf-linker"))?;
    let sysroot = PathBuf::from(sh::read(rustc(toolchain)?.args(["--print", "sysroot"]))?.trim());
    let remaps = remaps(root, &sysroot)?;
    let target = workspace::target().join("ebpf");
    let mut command = cargo(toolchain)?;
    command
        .current_dir(root.join("profiler-ebpf"))
        .args([
            "build",
            "--locked",
            "--release",
            "--target",
            TARGET,
            "--target-dir",
        ])
        .arg(&target)
        .env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &linker)
        .env("CARGO_ENCODED_RUSTFLAGS", rustflags(&remaps).join("\x1f"))
        .env("RUSTC_WRAPPER", wrapper::install(&target)?)
        .env(wrapper::VARIABLE, "1");
    sh::run(&mut command)?;
    let built = target.join(TARGET).join("release/profiler-ebpf");
    let stripped = target.join("stripped.o");
    sh::run(
        Command::new(objcopy(&sysroot)?)
            .arg("--strip-debug")
            .args([&built, &stripped]),
    )?;
    let mut bytes = fs::read(&stripped).map_err(Error::file("read", &stripped))?;
    let prefixes: Vec<_> = remaps
        .iter()
        .map(|remap| (remap.from.to_string_lossy().into_owned(), remap.to.to_owned()))
        .collect();
    names::replace_prefixes(&mut bytes, &prefixes)?;
    let absolute = names::absolute_paths(&bytes, &[root, &workspace::cargo_home()]);
    if !absolute.is_empty() {
        return Err(Error::told(format!(
            "the object would hold absolute paths: {}",
            absolute.join(", ")
        )));
    }
    Ok((bytes, tools(toolchain, &linker, &remaps)?))
}

/// A directory that must not appear in the object, and what stands in its place.
struct Remap {
    from: PathBuf,
    placeholder: &'static str,
    to: &'static str,
}

/// Of several that fit, rustc takes the last.
fn remaps(root: &Path, sysroot: &Path) -> Result<Vec<Remap>> {
    let remap = |from: PathBuf, placeholder, to| Remap {
        from,
        placeholder,
        to,
    };
    let mut remaps = vec![remap(root.to_owned(), "WORKSPACE", ".")];
    // The registry's directory has the index's address hashed into its name: leave it out as well.
    let registry = workspace::cargo_home().join("registry/src");
    if let Ok(entries) = fs::read_dir(&registry) {
        for entry in entries {
            let entry = entry.map_err(Error::file("list", &registry))?;
            remaps.push(remap(entry.path(), "REGISTRY", "registry"));
        }
    }
    let library = sysroot.join("lib/rustlib/src/rust");
    if let Ok(real) = library.canonicalize() {
        if real != library {
            remaps.push(remap(real, "RUST", "rust"));
        }
        remaps.push(remap(library, "RUST", "rust"));
    }
    Ok(remaps)
}

fn rustflags(remaps: &[Remap]) -> Vec<String> {
    // bpf-linker makes BTF from the debug information.
    let fixed = ["-Cdebuginfo=2", "-Clink-arg=--btf"].map(str::to_owned);
    let remapped = remaps
        .iter()
        .map(|Remap { from, to, .. }| format!("--remap-path-prefix={}={to}", from.display()));
    fixed.into_iter().chain(remapped).collect()
}

fn tools(toolchain: Toolchain, linker: &Path, remaps: &[Remap]) -> Result<Tools> {
    let version = sh::read(rustc(toolchain)?.arg("-vV"))?;
    let llvm = version
        .lines()
        .find_map(|line| line.strip_prefix("LLVM version: "))
        .unwrap_or("unknown");
    let placeholders = remaps
        .iter()
        .map(|Remap { placeholder, to, .. }| Remap {
            from: PathBuf::from(placeholder),
            placeholder,
            to,
        })
        .collect::<Vec<_>>();
    let mut flags = rustflags(&placeholders);
    flags.dedup();
    Ok(Tools {
        rustc: version.lines().next().unwrap_or_default().to_owned(),
        bpf_linker: sh::read(Command::new(linker).arg("--version"))?.trim().to_owned(),
        llvm: llvm.to_owned(),
        flags,
    })
}

/// `cargo xtask` exports its own toolchain's variables, which would send the other one astray.
fn without_our_toolchain(mut command: Command) -> Command {
    for (name, _) in env::vars_os() {
        let name_text = name.to_string_lossy();
        let ours = [
            "CARGO",
            "RUSTC",
            "RUSTDOC",
            "RUSTFLAGS",
            "RUSTUP_TOOLCHAIN",
            "LD_LIBRARY_PATH",
        ];
        if ours.contains(&&*name_text) || (name_text.starts_with("CARGO_") && name_text != "CARGO_HOME") {
            command.env_remove(&name);
        }
    }
    command
}

fn cargo(toolchain: Toolchain) -> Result<Command> {
    match toolchain {
        Toolchain::Debian => {
            let mut command = without_our_toolchain(Command::new(debian("cargo")?));
            // The target is not a stable one.
            command.env("RUSTC", debian("rustc")?).env("RUSTC_BOOTSTRAP", "1");
            Ok(command)
        }
        Toolchain::Nightly => {
            let mut command = nightly("cargo")?;
            command.args(["-Z", "build-std=core"]);
            Ok(command)
        }
    }
}

fn rustc(toolchain: Toolchain) -> Result<Command> {
    match toolchain {
        Toolchain::Debian => Ok(without_our_toolchain(Command::new(debian("rustc")?))),
        Toolchain::Nightly => nightly("rustc"),
    }
}

fn debian(program: &str) -> Result<PathBuf> {
    let path = Path::new("/usr/bin").join(program);
    if path.exists() {
        Ok(path)
    } else {
        Err(missing(&path.display().to_string()))
    }
}

fn nightly(program: &str) -> Result<Command> {
    let rustup = sh::find("rustup").ok_or_else(|| missing("rustup"))?;
    let mut command = without_our_toolchain(Command::new(rustup));
    command.args(["run", "nightly", program]);
    Ok(command)
}

fn objcopy(sysroot: &Path) -> Result<OsString> {
    let beside_rustc = sysroot.join("lib/rustlib/x86_64-unknown-linux-gnu/bin/llvm-objcopy");
    [PathBuf::from("/usr/lib/llvm-22/bin/llvm-objcopy"), beside_rustc]
        .into_iter()
        .find(|path| path.exists())
        .or_else(|| sh::find("llvm-objcopy"))
        .map(PathBuf::into_os_string)
        .ok_or_else(|| missing("llvm-objcopy"))
}

fn missing(what: &str) -> Error {
    Error::told(format!(
        "{what} is missing, which building the eBPF object needs: on Debian, run `cargo xtask setup`; elsewhere, \
         `rustup toolchain install nightly --component rust-src --component llvm-tools`, `cargo install bpf-linker`, \
         and then `cargo xtask ebpf --toolchain nightly`"
    ))
}
