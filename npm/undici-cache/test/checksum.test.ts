// XXH3 against values from the crate twox-hash 2.1, for each code path by input length.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { xxh3 } from '../src/checksum.js'

/** Length, hash with seed 0, hash with the length as seed. */
const EXPECTED: readonly (readonly [number, string, string])[] = [
  [0, '2d06800538d394c2', '2d06800538d394c2'],
  [1, 'c44bdff4074eecdb', '5eaac1f7b17ef730'],
  [2, '075f073a756c896a', '42602ee710077982'],
  [3, '52aab5efb65ba70c', '760f85776a976d75'],
  [4, 'ad400f5ff0348d48', 'f41266acd0b8b61e'],
  [7, 'af2766a54ceec4a6', '4813ddc248919d5d'],
  [8, 'a4525fd03fd9b3fb', '87454d483dfb44eb'],
  [9, '34ef567b4f2f73ec', 'dc7c8f4611584a09'],
  [15, '76b4fc2aa742f4fa', '8247105025294051'],
  [16, '2f104d56be42214a', '255c9f558f61337b'],
  [17, '3e6df1cc1fb35f38', 'faa39b9a3fd38af3'],
  [32, '72e631585f207486', '42339fae118ea9e2'],
  [33, '439574e72cbde155', '654fd27a77eb506d'],
  [64, 'd5832b3264a53922', '79826f8a1c802c07'],
  [65, 'ddb95e9aa0a13c14', '40292462890152df'],
  [96, '67891a95083d3480', '13a4f301d4343c60'],
  [97, '1ea6107144e9e897', 'b261d83cf178bacb'],
  [127, '8b08640ac6cfb0b9', '0ce8d4f110d983d2'],
  [128, '65313193ac18bfce', 'd07f0dc0fc27e7d3'],
  [129, '43107010904f124d', 'a83642ea0caf38e1'],
  [144, '70885cca97583e09', '6bab7607503beb56'],
  [200, '6e51d11cad996efa', 'dfeffe87173f2c6a'],
  [240, '8aa7f1fc572d11d6', '5283d60e03c204d7'],
  [241, 'ddb128241a3b606b', 'bbf46748291c3227'],
  [256, 'f10aa339793cbeb9', 'e7e9e45674402fd4'],
  [257, 'dfff9b878b1368d4', 'b5bb520f3f6b3f4d'],
  [1023, '43fd59e4d8c6fb49', '275e17e08614ff90'],
  [1024, '7e5f60b49bfb2c59', 'a00c945f4cd66f73'],
  [1025, 'c5307e2f77c7f6c4', '65cd9b26428067a7'],
  [1088, 'c8bf731be65deee2', '9c8cf7ef20a2624a'],
  [1089, '1aa81411e3c14fa5', '8a3a4629141cbd00'],
  [2047, 'bb78f3fd93bb9e51', 'f123b3982c6f3e60'],
  [2048, 'dfc35dcc42b031f9', '8e77a490d61bc34c'],
  [2049, 'cf78fdbc49068e34', '72c1fe32f0e4e235'],
  [4096, '2584629371ea1d8f', 'b9c7f91537e793db'],
  [5000, '263abca14ca3a5a1', '7a94672c31dc4f55'],
  [65536, '0785b3cc98e77855', '91dbf2773922410d'],
  [65537, '1d0096d27026fdb4', '526719e88777c27b'],
  [1048576, '8f85eea515388aa3', '8f60891c9fd28da6'],
]

function input(length: number): Buffer {
  return Buffer.from(Uint8Array.from({ length }, (_, index) => Number(((BigInt(index) * 2654435761n) >> 7n) & 0xffn)))
}

test('bytes of every length have the hash of the reference', () => {
  for (const [length, plain, seeded] of EXPECTED) {
    const bytes = input(length)
    assert.equal(xxh3(bytes).toString(16).padStart(16, '0'), plain, `${length} bytes`)
    assert.equal(xxh3(bytes, BigInt(length)).toString(16).padStart(16, '0'), seeded, `${length} bytes with a seed`)
  }
})
