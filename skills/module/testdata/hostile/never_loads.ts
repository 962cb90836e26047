// stalled
await new Promise(() => {});
export async function execute() {}
