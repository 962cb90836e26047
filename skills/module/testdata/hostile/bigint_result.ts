// threw: TypeError
export async function execute() { return { n: 1n }; }
