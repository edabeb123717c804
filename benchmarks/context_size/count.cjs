// Counts the tokens of the texts in a JSON array on standard input, in each vocabulary.
const encodings = ["o200k_base", "cl100k_base"].map((name) => require(`gpt-tokenizer/encoding/${name}`));
let input = "";
process.stdin
  .on("data", (chunk) => (input += chunk))
  .on("end", () => {
    const counts = JSON.parse(input).map((text) => encodings.map((encoding) => encoding.encode(text).length));
    console.log(JSON.stringify(counts));
  });
