// memory
export async function execute() { const all = []; for (;;) all.push(new Array(1e4).fill(1)); }
