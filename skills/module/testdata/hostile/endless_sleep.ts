// timeout
export async function execute() { await new Promise((done) => setTimeout(done, 1e9)); }
