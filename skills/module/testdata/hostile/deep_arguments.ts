// threw crashed
export async function execute(args: unknown, host: any) { let deep: unknown = 1; for (let i = 0; i < 2e4; i++) deep = [deep]; await host.storage.get(deep); }
