//! The terminal, and how it is left as it was: at the end, on a panic, on a signal, and while the process is stopped.

use std::{
    io::{self, Stdout, Write as _, stdout},
    panic,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
};

use crossterm::{
    clipboard::CopyToClipboard,
    cursor::{Hide, Show},
    execute, queue,
    style::Print,
    terminal::{
        BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
        disable_raw_mode, enable_raw_mode,
    },
};
use ratatui::{Frame, Terminal, backend::CrosstermBackend};
use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use super::lens::{Mouse, Size};

/// Whether the terminal is ours at the moment.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// Whether the mouse is, while the terminal is.
static MOUSE: AtomicBool = AtomicBool::new(false);

/// Asks for buttons, moves while one is down, and the wheel, with places in decimal digits. Other moves are of no use here, and
/// there are many.
const MOUSE_ON: &str = "\x1b[?1002h\x1b[?1006h";

/// Leaves them to the terminal, which selects text by them.
const MOUSE_OFF: &str = "\x1b[?1006l\x1b[?1002l";

/// The hook is set once.
static HOOK: Once = Once::new();

/// The terminal, until dropped.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes it: raw input, another screen, no cursor, and the mouse if that selects here.
    ///
    /// # Errors
    ///
    /// Where it is none, or cannot be written to.
    pub fn enter(mouse: Mouse) -> io::Result<Self> {
        HOOK.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |information| {
                leave();
                before(information);
            }));
        });
        let terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        MOUSE.store(mouse == Mouse::Here, Ordering::SeqCst);
        take()?;
        Ok(Self { terminal })
    }

    /// How large it is.
    ///
    /// # Errors
    ///
    /// Where that cannot be asked.
    pub fn size(&self) -> io::Result<Size> {
        let size = self.terminal.size()?;
        Ok(Size {
            columns: size.width,
            rows: size.height,
        })
    }

    /// Draws what has changed, at once.
    ///
    /// # Errors
    ///
    /// Where it cannot be written to.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        queue!(stdout(), BeginSynchronizedUpdate)?;
        self.terminal.draw(draw)?;
        execute!(stdout(), EndSynchronizedUpdate)
    }

    /// Takes the mouse, or leaves it to the terminal.
    ///
    /// # Errors
    ///
    /// Where it cannot be written to.
    pub fn set_mouse(mouse: Mouse) -> io::Result<()> {
        MOUSE.store(mouse == Mouse::Here, Ordering::SeqCst);
        ask_for_mouse()
    }

    /// Hands text to the terminal's clipboard (OSC 52), where it takes such.
    ///
    /// # Errors
    ///
    /// Where it cannot be written to.
    pub fn copy(&self, text: &str) -> io::Result<()> {
        execute!(stdout(), CopyToClipboard::to_clipboard_from(text))
    }

    /// Gives the terminal back and stops the process, until it is told to go on.
    ///
    /// # Errors
    ///
    /// Where the terminal cannot be taken again.
    pub async fn suspend(&mut self) -> io::Result<()> {
        // This thread may run on for a moment before all of them stop, and must not take the terminal again then.
        let mut go_on = signal(SignalKind::from_raw(Signal::CONT.as_raw()))?;
        leave();
        kill_process(getpid(), Signal::STOP)?;
        go_on.recv().await;
        take()?;
        self.terminal.clear()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

fn take() -> io::Result<()> {
    ENTERED.store(true, Ordering::SeqCst);
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, Hide)?;
    ask_for_mouse()
}

fn ask_for_mouse() -> io::Result<()> {
    let words = if MOUSE.load(Ordering::SeqCst) {
        MOUSE_ON
    } else {
        MOUSE_OFF
    };
    execute!(stdout(), Print(words))
}

/// Gives the terminal back, if it is ours. There is nothing to be done about a failure.
pub fn leave() {
    if ENTERED.swap(false, Ordering::SeqCst) {
        let _ = disable_raw_mode();
        let _ = execute!(stdout(), Print(MOUSE_OFF), LeaveAlternateScreen, Show);
        let _ = stdout().flush();
    }
}
