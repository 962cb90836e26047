// timeout
export async function execute() { return /^(a+)+$/.test("a".repeat(64) + "!"); }
