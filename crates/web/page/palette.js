// Colours of images: three maps that are perceptually uniform, and also read in grey; cividis looks alike with colour
// blindness.

/** 33 colours of each, equally far apart, from the tables of matplotlib; those between are interpolated. @type {Record<string, string>} */
const MAPS = {
  viridis: '440154470d6048186a482374472d7b4536814240863f49893b528b375a8d33638d2f6a8e2c728e297a8e26818e23898e21908c1f988b1f9f8821a68528ae8031b57b3ebc744cc26c5dc9636ece5882d34c96d83fabdc32c0df24d5e21aeae51afde725',
  inferno: '0000040403120b0724150b37210c4a2e0a5a3c09654a0c6b57106d63146e70196e7d1e6d89226a962766a32b61af315cbb3755c63e4dd14644db4f3be35932eb6528f1711ef67f14f98d0afb9c06fcab0ffbba1ff9ca32f5d949f2e865f3f586fcffa4',
  cividis: '00224e00285b002e6a0433711a386f273e6e32436d3b496c434e6c4b546c52596d5a5f6e61656f686a716f70737576767c7b788481798b8778938d789b9376a39a75aba072b3a670bbad6cc3b469ccba64d4c15fddc958e6d051efd748f8df3cfee838',
};

/** @type {[string, string][]} */
export const NAMES = Object.keys(MAPS).map((name) => [name, name]);

/** @type {Map<string, Uint32Array<ArrayBuffer>>} */
const made = new Map();

/**
 * 256 colours as pixels of a canvas (bytes R, G, B, A in memory).
 * @param {string} name
 * @returns {Uint32Array<ArrayBuffer>}
 */
export function palette(name) {
  let colours = made.get(name);
  if (colours) return colours;
  const map = MAPS[name] ?? MAPS.viridis;
  const last = map.length / 6 - 1;
  colours = new Uint32Array(256);
  const bytes = new Uint8Array(colours.buffer);
  const part = (/** @type {number} */ at, /** @type {number} */ channel) => parseInt(map.substr(at * 6 + channel * 2, 2), 16);
  for (let i = 0; i < 256; i += 1) {
    const place = (i / 255) * last;
    const at = Math.min(last - 1, Math.floor(place));
    for (let channel = 0; channel < 3; channel += 1) {
      bytes[i * 4 + channel] = Math.round(part(at, channel) + (place - at) * (part(at + 1, channel) - part(at, channel)));
    }
    bytes[i * 4 + 3] = 255;
  }
  made.set(name, colours);
  return colours;
}
