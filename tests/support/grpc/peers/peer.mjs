// @grpc/grpc-js with @grpc/grpc-js-xds: what tests/support/grpc/peers/__init__.py describes.
//
// Argument: the folder of node_modules. grpc-js looks methods up by their names, so that a server is told its paths.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const require = createRequire(join(process.argv[2], 'here.js'));
const grpc = require('@grpc/grpc-js');
const xds = require('@grpc/grpc-js-xds');

xds.register();
const same = (bytes) => bytes;
const say = (words) => process.stdout.write(JSON.stringify(words) + '\n');

function credentials(files) {
  const fallback = files
    ? grpc.ServerCredentials.createSsl(readFileSync(files.ca),
      [{ cert_chain: readFileSync(files.certificate), private_key: readFileSync(files.key) }], true)
    : grpc.ServerCredentials.createInsecure();
  return new xds.XdsServerCredentials(fallback);
}

function serve({ address, paths, tls }) {
  const server = new xds.XdsServer({});
  for (const path of paths) {
    const method = { path, requestStream: false, responseStream: false, requestDeserialize: same,
      responseSerialize: same, requestSerialize: same, responseDeserialize: same };
    server.addService({ [path]: method }, { [path]: (_, done) => done(null, Buffer.from('grpc-js')) });
  }
  return new Promise((resolve, reject) =>
    server.bindAsync(address, credentials(tls), (error) => (error ? reject(error) : resolve())));
}

function call(client, { path, metadata, timeout }) {
  const headers = new grpc.Metadata();
  for (const [key, value] of metadata) headers.add(key, value);
  const deadline = Date.now() + timeout * 1000;
  return new Promise((resolve) => client.makeUnaryRequest(path, same, same, Buffer.alloc(0), headers, { deadline },
    (error, answer) => resolve(error ? { code: error.code, said: error.details } : { code: 0, said: `${answer}` })));
}

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const orders = JSON.parse((await lines.next()).value);
const client = orders.target && new grpc.Client(orders.target, grpc.credentials.createInsecure());
const bound = orders.serve ? serve(orders.serve) : Promise.resolve();
// A server that is not configured yet is not bound, and has begun all the same.
bound.catch((error) => { console.error(error); process.exit(1); });
say('ready');
for await (const line of lines) say(await call(client, JSON.parse(line)));
process.exit(0);
