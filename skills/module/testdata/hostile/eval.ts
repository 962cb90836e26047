// threw: ReferenceError
export async function execute() { return (0, eval)("1 + 1"); }
