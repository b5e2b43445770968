//! A program with a page, and the images that it shows.

use super::place::wrong;
use flow::Fault;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use store::{Meta, SchemaId, Writer};
use wire::ad00;

/// A program with a page.
pub(super) struct Served {
    pub(super) child: Child,
    /// Address and token of the page.
    pub(super) page: Option<(String, String)>,
}

impl Served {
    /// Starts a program, which prints the URL of its page on stderr.
    pub(super) fn start(mut command: Command, has_page: bool) -> Result<Self, Fault> {
        let stderr = if has_page { Stdio::piped() } else { Stdio::null() };
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        let mut child = command.spawn().map_err(wrong("beamport does not start"))?;
        let mut page = None;
        if let Some(said) = child.stderr.take() {
            let mut lines = BufReader::new(said);
            let mut line = String::new();
            while page.is_none() && lines.read_line(&mut line).map_err(wrong("beamport says nothing"))? > 0 {
                // Its token is in a file, which the line names.
                let url = line.trim().strip_prefix("page: http://").and_then(|said| said.split_once("/ "));
                let token = url.and_then(|(_, file)| std::fs::read_to_string(file.rsplit('`').nth(1)?).ok());
                page = url.zip(token).map(|((address, _), token)| (address.to_owned(), token.trim().to_owned()));
                line.clear();
            }
            // Drains the pipe, so that later output does not block the program.
            std::thread::spawn(move || lines.read_to_end(&mut Vec::new()));
        }
        let served = Self { child, page };
        match served.page.is_some() == has_page {
            true => Ok(served),
            false => Err(Fault::new("bench: beamport serves no page", "it ended before it printed a URL")),
        }
    }

    /// The URL for a browser.
    pub(super) fn url(&self) -> String {
        self.page.as_ref().map_or_else(String::new, |(address, token)| format!("http://{address}/#token={token}"))
    }
}

/// Appends an image; its bytes.
pub(super) fn append_image(
    writer: &mut Writer,
    timestamp: i64,
    number: u64,
    side: usize,
    pixels: &[u16],
) -> Result<u64, Fault> {
    let dimensions = [side as i64; 2];
    let frame = ad00::Ad00 {
        source_name: "camera",
        id: number as i32,
        timestamp,
        dimensions: (&dimensions).into(),
        data: pixels.into(),
        attributes: Default::default(),
    };
    let mut message = Vec::new();
    ad00::write(&mut message, &frame).map_err(wrong("a frame cannot be encoded"))?;
    let origin = writer.origin("camera").map_err(refused)?;
    let meta = Meta { source_time: timestamp, origin, origin_seq: number, schema: SchemaId(ad00::ID), flags: 0 };
    writer.append(&meta, &message).map_err(refused)?;
    Ok(message.len() as u64)
}

pub(super) fn refused(error: store::Error) -> Fault {
    Fault::new("bench: a stream cannot be written", error)
}
