//! Frames that areaDetector has compressed (NDPluginCodec), and their pixels.
//!
//! `lz4` is one block of LZ4; `bslz4` bit planes and LZ4 in blocks; `blosc` a chunk of c-blosc, which says itself how
//! it is packed; `jpeg` a file of JPEG, of one byte a pixel and colour.
//!
//! Constraint: what a peer says of sizes is checked before memory is taken for it.

use crate::limits::{FRAME_BYTES_MAX, LZ4_RATIO};
use std::ffi::c_void;
use wire::bitshuffle;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

/// Decodes the pixels of a frame into `out`. `bytes`: size of all of them; `element`: size of one. `None` where the
/// codec is unknown, or where the frame does not decode to this size.
pub(crate) fn decode(codec: &[u8], packed: &[u8], bytes: usize, element: usize, out: &mut Vec<u8>) -> Option<()> {
    if bytes > FRAME_BYTES_MAX {
        return None;
    }
    match codec {
        b"lz4" if bytes / LZ4_RATIO <= packed.len() => {
            out.resize(bytes, 0);
            let length = lz4_flex::block::decompress_into(packed, out).ok()?;
            (length == bytes).then_some(())
        }
        b"bslz4" if bytes / LZ4_RATIO <= packed.len() => {
            out.resize(bytes, 0);
            bitshuffle::unpack(packed, element, None, out)
        }
        b"blosc" => blosc(packed, bytes, out),
        b"jpeg" if element == 1 => jpeg(packed, bytes, out),
        _ => None,
    }
}

fn blosc(packed: &[u8], bytes: usize, out: &mut Vec<u8>) -> Option<()> {
    let source: *const c_void = packed.as_ptr().cast();
    let mut length = 0;
    // SAFETY: the slice has `packed.len()` readable bytes; `length` outlives the call, which writes it.
    let failed = unsafe { blosc_src::blosc_cbuffer_validate(source, packed.len(), &mut length) };
    if failed != 0 || length != bytes {
        return None;
    }
    out.resize(bytes, 0);
    // SAFETY: the chunk was validated, so that it may be decompressed; it has no more bytes than there is room for.
    let length = unsafe { blosc_src::blosc_decompress_ctx(source, out.as_mut_ptr().cast(), out.len(), 1) };
    (usize::try_from(length) == Ok(bytes)).then_some(())
}

fn jpeg(packed: &[u8], bytes: usize, out: &mut Vec<u8>) -> Option<()> {
    let of = |colours| {
        let options = DecoderOptions::default().jpeg_set_out_colorspace(colours);
        JpegDecoder::new_with_options(ZCursor::new(packed), options.set_max_width(1 << 16).set_max_height(1 << 16))
    };
    let mut grey = of(ColorSpace::Luma);
    grey.decode_headers().ok()?;
    let info = grey.info()?;
    let pixels = usize::from(info.width) * usize::from(info.height);
    let mut decoder = match bytes.checked_div(pixels) {
        Some(1) => grey,
        Some(3) => of(ColorSpace::RGB),
        _ => return None,
    };
    decoder.decode_headers().ok()?;
    if decoder.output_buffer_size() != Some(bytes) {
        return None;
    }
    out.resize(bytes, 0);
    decoder.decode_into(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_frame_are_refused_and_take_no_memory() {
        let mut out = Vec::new();
        let noise: Vec<u8> = (0..4000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for codec in ["lz4", "bslz4", "blosc", "jpeg", "zip", ""] {
            for bytes in [0, 1, 4096, 262_144, usize::MAX] {
                for end in [0, 1, 15, 16, 17, 4000] {
                    for element in [1, 2, 8] {
                        let decoded = decode(codec.as_bytes(), &noise[..end], bytes, element, &mut out);
                        assert!(decoded.is_none() || bytes <= 1, "{codec} {bytes} {end}");
                    }
                }
            }
        }
        assert!(out.capacity() <= 2_000_000, "{}", out.capacity());
    }
}
