// threw: RangeError: the arguments of storage.get
export async function execute(args: unknown, host: any) { await host.storage.get("x".repeat(20 << 20)); }
