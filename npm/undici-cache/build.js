// `npm run build`: builds the package in `dist` or the named folder. The compiler writes CommonJS, which all versions of Node.js can load, and this script
// wraps it in ES modules. So there is only one copy of the code and its types, whether it is loaded with `import` or `require`.

import { execFileSync } from 'node:child_process'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('.', import.meta.url))
const out = resolve(root, process.argv[2] ?? 'dist')
const require = createRequire(import.meta.url)

function write(name, lines) {
  writeFileSync(`${out}/${name}`, `${lines.join('\n')}\n`)
}

/** The names that a declaration file exports, types included. */
function namesIn(module) {
  const text = readFileSync(`${out}/${module}.d.ts`, 'utf8')
  const listed = [...text.matchAll(/^export \{ (.*) \} from/gm)].flatMap(([, names]) => names.split(', '))
  return listed.filter((name) => !name.includes(' as '))
}

rmSync(out, { recursive: true, force: true })
execFileSync(`${root}node_modules/.bin/tsc`, ['-p', 'tsconfig.build.json', '--outDir', out], { cwd: root, stdio: 'inherit' })
// TypeScript before 7 accepts no alias for a name that is exported with `type`. In declarations, the word `type` makes no difference.
const declarations = `${out}/index.d.ts`
writeFileSync(declarations, readFileSync(declarations, 'utf8').replace(/^export type \{/gm, 'export {').replace(/([{,]) type /g, '$1 '))
write('package.json', ['{ "type": "commonjs" }'])
for (const module of ['index', 'prometheus']) {
  const { default: main, ...others } = require(`${out}/${module}.js`)
  // For `import`, a whole CommonJS module is its default export.
  const asDefault = main === undefined ? [] : [`export { ${main.name} as default } from './${module}.js'`]
  write(`${module}.mjs`, [`export { ${Object.keys(others).join(', ')} } from './${module}.js'`, ...asDefault])
  write(`${module}.d.mts`, [`export * from './${module}.js'`, ...asDefault])
}
// `require` returns the class itself, with the other exports as properties.
const exported = Object.keys(require(`${out}/index.js`)).filter((name) => name !== 'default')
write('main.js', [
  "const api = require('./index.js')", 'module.exports = Object.assign(api.default, api)',
  '// Lets an `import` of this file detect the names of its exports.', `0 && (module.exports = { ${exported.join(', ')} })`,
])
write('main.d.ts', [
  "import * as api from './index.js'", 'declare class Main extends api.RedisCacheStore {}', 'declare namespace Main {',
  ...namesIn('index').map((name) => `  export import ${name} = api.${name}`), '}', 'export = Main',
])
