// threw: Error: later
export async function execute() { setTimeout(() => { throw new Error("later"); }, 1); await new Promise(() => {}); }
