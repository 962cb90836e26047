// threw crashed
export async function execute() { let deep: unknown = 1; for (let i = 0; i < 2e4; i++) deep = [deep]; return deep; }
