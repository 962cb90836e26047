// stalled
export async function execute() { await new Promise(() => {}); }
