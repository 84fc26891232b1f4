//! Code that a target maps while it is looked at: return probes that are not safe beside it are given up.
//!
//! A library that throws, ends threads or switches stacks may come with `dlopen`, long after how calls are seen to end was chosen.
//! Whoever made a session therefore watches how much code its processes have mapped, and has the scope planned anew when that changes:
//! what would now be seen to end in another way is then attached so. Calls that are open at that moment return by the kernel's
//! trampoline all the same.

use std::{
    sync::{
        Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use profiler_target::mapped_code_bytes;

use super::{
    command::{Caller, Command, Editable, Handle, blocking},
    error::SessionError,
};

/// Time between looks at how much code is mapped.
const LOOK: Duration = Duration::from_millis(250);

/// Whether a session has return probes; there as long as the session.
#[derive(Default, Debug)]
pub struct ReturnProbed(AtomicBool);

impl ReturnProbed {
    /// Says so.
    pub fn set(&self, is_return_probed: bool) {
        self.0.store(is_return_probed, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A session whose return probes are looked after.
pub struct LookedAfter {
    /// Its owner.
    pub caller: Caller,
    /// Its name.
    pub name: String,
    /// Its processes.
    pub pids: Vec<u32>,
    /// Code that these had mapped before their files were read, in bytes.
    pub code_bytes: u64,
    /// The session.
    pub session: Weak<ReturnProbed>,
}

impl Handle {
    /// Looks after the return probes of a session until that ends.
    pub(super) async fn look_after(self, mut of: LookedAfter) {
        loop {
            let Some(is_return_probed) = of.session.upgrade().map(|session| session.get()) else {
                return;
            };
            if is_return_probed {
                let pids = of.pids.clone();
                let code_bytes = blocking(move || Ok(mapped_code_bytes(&pids))).await;
                if let Ok(code_bytes) = code_bytes
                    && code_bytes != of.code_bytes
                {
                    of.code_bytes = code_bytes;
                    if let Err(error) = self.plan_anew(of.caller, &of.name).await {
                        tracing::warn!(session = of.name, %error, "whether return probes are still safe is not known");
                    }
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Has the scope of a session planned anew, for the code that its processes have by now.
    async fn plan_anew(&self, caller: Caller, name: &str) -> Result<(), SessionError> {
        let of = name.to_owned();
        let editable = self.ask(|reply| Command::Target {
            caller,
            name: of,
            reply,
        });
        let editable = editable.await?;
        let how = editable.how();
        let Editable {
            target,
            scope,
            revision,
            ..
        } = editable;
        let (prepared, _) = self.prepare(caller, target, scope.to_string(), how).await?;
        let prepared = Box::new(prepared);
        let name = name.to_owned();
        self.ask(|reply| Command::GiveUpReturns {
            caller,
            name,
            revision,
            prepared,
            reply,
        })
        .await
    }
}
