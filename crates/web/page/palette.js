// Colours of images: viridis, which is perceptually uniform and also reads in grey.

/** Polynomials of red, green and blue, fitted to the table of matplotlib (largest error 4 of 255). */
const TERMS = [
  [0.2777273272, 0.1050930431, -0.3308618287, -4.6342304986, 6.2282699363, 4.7763849977, -5.4354558559],
  [0.0054073445, 1.4046135299, 0.2148475595, -5.7991009734, 14.1799333668, -13.7451453777, 4.6458526122],
  [0.3340998053, 1.3845901627, 0.0950951630, -19.3324409563, 56.6905526007, -65.3530326334, 26.3124352496],
];

/** 256 colours as pixels of a canvas (bytes R, G, B, A in memory). */
export const COLOURS = new Uint32Array(256);

const bytes = new Uint8Array(COLOURS.buffer);
for (let i = 0; i < 256; i += 1) {
  const t = i / 255;
  for (const [channel, terms] of TERMS.entries()) {
    const value = terms.reduceRight((sum, term) => sum * t + term, 0);
    bytes[i * 4 + channel] = Math.round(255 * Math.min(1, Math.max(0, value)));
  }
  bytes[i * 4 + 3] = 255;
}
