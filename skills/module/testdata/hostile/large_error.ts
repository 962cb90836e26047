// threw: Error
export async function execute() { throw new Error("x".repeat(30 << 20)); }
