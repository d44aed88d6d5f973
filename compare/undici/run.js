// `make compare WHAT=undici`: installs and builds whatever is missing, measures, and prints the page. RESULTS is a folder that gets the
// page, and PAGE a file that contains a part of the page between two marker comments.

import { readFileSync, writeFileSync } from 'node:fs'
import { main, prepare } from './processes.js'

await main('compare', async () => {
  prepare()
  // These modules need the package that was just built.
  const [{ measure }, { page, shownIn }] = await Promise.all([import('./measure.js'), import('./report.js')])
  const results = await measure()
  console.log(page(results))
  if (!process.env.RESULTS) return
  writeFileSync(`${process.env.RESULTS}/undici.md`, page(results))
  if (process.env.PAGE) writeFileSync(process.env.PAGE, shownIn(readFileSync(process.env.PAGE, 'utf8'), results))
})
