// threw: Error: at once
throw new Error("at once");
export async function execute() {}
