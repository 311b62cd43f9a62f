// Which differences of two profiles are more than chance: what is not is grey.
//
// Values are shares of all. With numbers of requests (`data.requests`), they are times per request, as parts of what a request took before.
//
// What is in heaps was counted, not sampled: each difference is one, and both sides are parts of what was there before.
//
// A share differs where it does by more than some standard errors (`data.errors`). The error counts samples: a value stands for as many as the sample
// type `samples` says, and a count varies by its square root (Poisson). Samples have no times, so that a profile cannot be halved to
// see how its halves differ; that samples of one request are alike is in the number of errors, where the cells of both runs are known.

const COUNT = data.types.findIndex(([name]) => name === "samples");
const ERRORS = data.errors || 3;
// Values that each stand for one sample have the sum of their squares as their squared error.
const squaredErrorAt = (samples, i) => {
  const value = valueAt(samples, i);
  return COUNT < 0 ? 0 : (value * value) / Math.max(1, samples[i + 2 + COUNT]);
};
// Squared error of a share: what is in it and what is not vary by themselves.
const varianceOf = (value, total, error, errorOfAll) => {
  if (data.requests) return total > 0 ? error / total ** 2 : 0;
  const part = share(value, total);
  return total > 0 ? (error * (1 - part) ** 2 + Math.max(0, errorOfAll - error) * part ** 2) / total ** 2 : 0;
};
const wholeAfter = () => (ofHeaps ? drawn.before || drawn.after : data.requests ? (drawn.before * data.requests[1]) / data.requests[0] : drawn.after);
const partBefore = (one) => share(one.before, drawn.before);
const partAfter = (one) => share(one.after, wholeAfter());
const noiseOf = (one) => ERRORS * Math.sqrt(
  varianceOf(one.after, wholeAfter(), one.errorAfter, drawn.errorAfter) + varianceOf(one.before, drawn.before, one.errorBefore, drawn.errorBefore),
);
const changeOf = (one) => partAfter(one) - partBefore(one);
const isNoise = (one) => Math.abs(changeOf(one)) <= noiseOf(one);
