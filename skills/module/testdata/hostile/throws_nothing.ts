// threw: undefined
export async function execute() { throw undefined; }
