// threw: EvalError: a module cannot make code of a text
export async function execute() { return new Function("return 1")(); }
