// memory threw
export async function execute() { const all = []; for (;;) all.push(new Uint8Array(1 << 20).fill(7)); }
