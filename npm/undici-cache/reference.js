// `npm run reference`: writes API.md from the types of the package. With `--check`, reports whether the page is up to date. The reference is generated from the
// compiler's declarations and their comments. Generators that read sources need the compiler as a library, which TypeScript 7 is not.

import { readFileSync, writeFileSync } from 'node:fs'

const ENTRIES = [['index', '@larder/undici-cache'], ['prometheus', '@larder/undici-cache/prometheus']]
const PAGE = new URL('API.md', import.meta.url)

function typesOf(module) {
  return readFileSync(new URL(`dist/${module}.d.ts`, import.meta.url), 'utf8')
}

/** The re-exports of a module, in order: `[name, alias or undefined, module]`. */
function exportsOf(text) {
  return [...text.matchAll(/^export (?:type )?\{ (.*) \} from '\.\/(.*)\.js';$/gm)].flatMap(([, names, module]) => names.split(', ').map((entry) => {
    const [name, alias] = entry.replace(/^type /, '').split(' as ')
    return { name, alias, module }
  }))
}

/** The declaration of a name, with the comment before it. */
function declarationOf(text, name) {
  const found = new RegExp(`((?:/\\*\\*(?:(?!\\*/)[^])*\\*/\\n)?)^export (?:declare )?(?:class|function|interface|type|const) ${name}\\b`, 'm').exec(text)
  if (found === null) throw new Error(`there is no declaration of ${name}`)
  const [, comment] = found
  const begins = found.index + comment.length
  let depth = 0
  for (let at = begins; at < text.length; at++) {
    if ('({['.includes(text[at])) depth += 1
    if (')}]'.includes(text[at])) depth -= 1
    const isEnd = depth === 0 && (text[at] === ';' || (text[at] === '}' && text[at + 1] === '\n'))
    if (isEnd) return { comment: proseOf(comment), code: codeOf(text.slice(begins, at + 1)) }
  }
  throw new Error(`the declaration of ${name} does not end`)
}

function proseOf(comment) {
  return comment.replace(/^\/\*\*|\*\/$/gm, '').split('\n').map((line) => line.replace(/^\s*\* ?/, '').trim()).join('\n').trim()
}

function codeOf(declaration) {
  return declaration.replace(/^export (declare )?/, '').replace(/^ +#private;\n/m, '').replace('extends QuietEmitter', 'extends EventEmitter')
}

function sectionsOf(module) {
  const text = typesOf(module)
  const listed = exportsOf(text)
  const own = [...text.matchAll(/^export (?:declare )?(?:class|function|interface|type) (\w+)/gm)].map(([, name]) => ({ name, module }))
  const names = [...listed.filter(({ alias }) => alias === undefined), ...own]
  return names.map(({ name, module: from }) => {
    const aliases = listed.filter((entry) => entry.name === name && entry.alias !== undefined).map(({ alias }) => alias === 'default' ? 'the default export' : `\`${alias}\``)
    const { comment, code } = declarationOf(typesOf(from), name)
    return [`### ${name}`, aliases.length > 0 && `Also ${aliases.join(' and ')}.`, comment, `\`\`\`ts\n${code}\n\`\`\``].filter(Boolean).join('\n\n')
  })
}

const page = [
  '# API of @larder/undici-cache',
  'Generated from the types by `npm run reference`. See [README.md](README.md) for an introduction.',
  ...ENTRIES.flatMap(([module, name]) => [`## ${name}`, ...sectionsOf(module)]),
].join('\n\n') + '\n'

if (!process.argv.includes('--check')) {
  writeFileSync(PAGE, page)
} else if (readFileSync(PAGE, 'utf8') !== page) {
  console.error('API.md is not up to date: npm run reference')
  process.exit(1)
}
