// A real OpenID provider over HTTPS, for tests.
//
// Arguments: the folder of node_modules, a certificate, its key. Writes its address as the first line of output.
// A client gets tokens with the client credentials grant; "claims" in the request, as JSON, replaces what would be in
// the token. POST /control/keys with a JSON list of key names publishes these keys and signs with the last one.

import { generateKeyPairSync } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [modules, certificate, key] = process.argv.slice(2);
const { Provider } = await import(pathToFileURL(join(modules, 'oidc-provider', 'lib', 'index.js')));

const algorithms = { rs: 'RS256', ps: 'PS256', es: 'ES256', ed: 'EdDSA' };
const made = new Map();

function signingKey(kid) {
  if (!made.has(kid)) {
    const alg = algorithms[kid.slice(0, 2)];
    const pair = { RS256: ['rsa', { modulusLength: 2048 }], PS256: ['rsa', { modulusLength: 2048 }],
      ES256: ['ec', { namedCurve: 'P-256' }], EdDSA: ['ed25519'] }[alg];
    const { privateKey } = generateKeyPairSync(...pair);
    made.set(kid, { ...privateKey.export({ format: 'jwk' }), kid, use: 'sig', alg });
  }
  return made.get(kid);
}

function provider(issuer, kids) {
  const last = signingKey(kids.at(-1));
  return new Provider(issuer, {
    jwks: { keys: [signingKey('rs-base'), ...kids.filter((kid) => kid !== 'rs-base').map(signingKey)] },
    enabledJWA: { idTokenSigningAlgValues: Object.values(algorithms) },
    clients: [{
      client_id: 'agent', client_secret: 'agent-secret', grant_types: ['client_credentials'], redirect_uris: [],
      response_types: [], token_endpoint_auth_method: 'client_secret_post',
    }],
    scopes: ['read', 'write'],
    cookies: { keys: ['tests'] },
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => 'https://backend.example',
        useGrantedResource: () => true,
        getResourceServerInfo: (ctx, resource) => ({
          scope: 'read write', audience: resource, accessTokenFormat: 'jwt', accessTokenTTL: 600,
          jwt: { sign: { alg: last.alg, kid: last.kid } },
        }),
      },
    },
    formats: {
      customizers: {
        jwt: (ctx, token, jwt) => { Object.assign(jwt.payload, JSON.parse(ctx.oidc.body.claims ?? '{}')); },
      },
    },
  });
}

const server = createServer({ cert: readFileSync(certificate), key: readFileSync(key) });
let current;

server.on('request', (request, response) => {
  if (request.url !== '/control/keys') {
    current.callback()(request, response);
    return;
  }
  let body = '';
  request.on('data', (part) => { body += part; });
  request.on('end', () => {
    current = provider(current.issuer, JSON.parse(body));
    response.end();
  });
});

server.listen(0, '127.0.0.1', () => {
  const issuer = `https://localhost:${server.address().port}`;
  current = provider(issuer, ['rs-base']);
  process.stdout.write(`${issuer}\n`);
});
