//! What `hs00` and `hs01` share: all but the types of their numbers.

use crate::{DType, Field, Fields, Numbers};

/// Makes one of them: its id, the types of its lengths and of its times, and the types of its arrays by union tag,
/// from tag 1.
macro_rules! histogram {
    ($id:literal, $length:ty, $time:ty, $types:expr) => {
        use crate::{Array, DType, List, Numbers};

        message!($id, Histogram);

        /// Types by union tag, from tag 1.
        const TYPES: [DType; 4] = $types;

        table! {
            /// A histogram of events.
            pub struct Histogram<'a> {
                /// Its maker; empty if the sender left it out.
                0 source: &'a str;
                /// Time of the data, ns since 1970 UTC.
                1 timestamp: $time;
                /// The dimensions, slowest first.
                2 dim_metadata: List<'a, Dimension<'a>>;
                /// When the dimensions last changed, ns since 1970 UTC.
                3 last_metadata_timestamp: $time;
                /// Lengths of the dimensions as sent, slowest first; [`Histogram::extent`] is what the data has.
                4 current_shape: Array<'a, $length> [required];
                /// First bin of each dimension, where this is a part of a larger histogram.
                5 offset: Array<'a, $length>;
                /// The counts, in C order.
                7 data: Option<Numbers<'a>> {TYPES};
                /// Their errors.
                9 errors: Option<Numbers<'a>> {TYPES};
                /// More about it, in the sender's words.
                10 info: &'a str;
            }
        }

        table! {
            /// A dimension of a histogram.
            pub struct Dimension<'a> {
                /// Number of bins.
                0 length: $length;
                /// Unit of the edges.
                1 unit: &'a str;
                /// The quantity of the edges.
                2 label: &'a str;
                /// Edges of the bins, one more than there are bins.
                4 bin_boundaries: Option<Numbers<'a>> {TYPES};
            }
        }

        impl Histogram<'_> {
            /// Lengths of the dimensions that an array of the histogram has: `current_shape` where the array has
            /// as many numbers, else one dimension.
            pub fn extent(&self, numbers: Numbers<'_>) -> Vec<usize> {
                let shape = self.current_shape.iter().map(|length| usize::try_from(length).ok());
                crate::histogram::extent(shape.collect(), numbers)
            }
        }
    };
}
pub(crate) use histogram;

/// The shape if it is one and holds as many numbers, else one dimension.
pub(crate) fn extent(shape: Option<Vec<usize>>, numbers: Numbers<'_>) -> Vec<usize> {
    let fits = |shape: &Vec<usize>| {
        shape.len() <= crate::limits::DIMENSIONS_MAX
            && crate::array::elements(shape.iter().copied().map(Some)) == Some(numbers.len())
    };
    shape.filter(fits).unwrap_or_else(|| vec![numbers.len()])
}

/// The fields of a histogram, its arrays in their shape.
pub(crate) fn shaped<'a>(mut fields: Fields<'a>, extent: impl Fn(Numbers<'a>) -> Vec<usize>) -> Fields<'a> {
    for (name, field) in &mut fields {
        if let ("data" | "errors", Field::Array { dtype, bytes, shape }) = (*name, field) {
            *shape = extent(Numbers::new(*dtype, bytes).unwrap_or(Numbers::empty(DType::UInt8)));
        }
    }
    fields
}
