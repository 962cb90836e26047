// threw timeout: 
export async function execute() { return new RegExp("(".repeat(1e6) + ")".repeat(1e6)).test("a"); }
