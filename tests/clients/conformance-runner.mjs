// Lets the protocol's conformance runner start on versions of Node without `globSync`,
// which it imports for a command that no test uses.
import { register } from 'node:module'

const completed = "export * from 'node:fs'; export { default } from 'node:fs'; export const globSync = () => []"
const hooks = `export const resolve = (name, context, next) =>
  name === 'fs' && context.parentURL?.includes('/conformance/')
    ? { url: 'data:text/javascript,' + ${JSON.stringify(encodeURIComponent(completed))}, shortCircuit: true }
    : next(name, context)`
register('data:text/javascript,' + encodeURIComponent(hooks))
